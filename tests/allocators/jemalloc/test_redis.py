"""A real program under jemalloc: Debian's redis-server, which is linked with it."""

from __future__ import annotations

import re
from pathlib import Path

from dmods.allocators.jemalloc import stats
from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import cores, software
from fixtures.heaps import jemalloc_heaps


def said_by(directory: Path) -> dict[str, int]:
    """Return the first line of MEMORY MALLOC-STATS, which is malloc_stats_print()'s: allocated, active, ...

    in bytes.
    """
    with software.connected(directory / "redis.sock") as client:
        client.sendall(b"MEMORY MALLOC-STATS\r\n")
        said = b""
        while b"--- End jemalloc statistics ---" not in said:
            data = client.recv(1 << 16)
            assert data, said
            said += data
    line = next(line for line in said.decode().splitlines() if line.startswith("Allocated: "))
    return {name.lower(): int(value) for name, value in re.findall(r"(\w+): (\d+)", line)}


def test_a_loaded_server(tmp_path: Path) -> None:
    with software.redis(tmp_path, {}) as process:
        said = said_by(tmp_path)
        cores.gcore(process.pid, tmp_path / "core.1603")
    heap = find_heap(CoreFile(str(tmp_path / "core.1603")))
    assert heap.notes == []
    (found,) = jemalloc_heaps(heap)
    one, caches = found.one, found.caches
    assert one.extents.fault_count == 0
    assert heap.leaks().direct_count == 0
    assert heap.leaks().indirect_count == 0
    usages = stats.usages(heap.words, one, caches)
    # The answer itself, 100 KB of text, was in memory when it was made. A server is also never idle.
    for name, found in (("allocated", sum(u.allocated for u in usages)), ("active", sum(u.active for u in usages))):
        assert abs(found - said[name]) < 512 << 10, (name, found, said)
    assert said["allocated"] > 2 << 20
