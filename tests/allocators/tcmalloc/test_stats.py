"""Sums over tcmalloc's heap, compared with what it said of itself just before the core."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import FREE
from dmods.heap.heap import find_heap
from fixtures import cores, judge, tcmallocs
from fixtures.cores import CoreSet
from fixtures.tcmallocs import FULL, MINIMAL
from tests.allocators.tcmalloc.test_truth import walked
from tests.auditkit import answer, text

pytestmark = pytest.mark.thorough("a core of its own for each; another core is tested")

#: The sampler is in the full library only.
SAMPLED = {"TCMALLOC_SAMPLE_PARAMETER": "4096"}


def taken() -> list[tuple[str, str, dict[str, str]]]:
    return [
        ("host", MINIMAL, {}),
        ("bookworm", FULL, {}),
        ("trixie", MINIMAL, {}),
        ("trixie", FULL, SAMPLED),
        ("sid", FULL, SAMPLED),
    ]


def compare(made: CoreSet) -> None:
    target = judge.open_core(made)
    heap = find_heap(target)
    one, said = walked(heap), made.truth.facts
    assert one.inner is not None
    rows = dict(one.statistics())
    free_bytes = sum(one.inner.free)
    assert one.inner.object_bytes - free_bytes == said["generic.current_allocated_bytes"]
    spans = rows["bytes of spans in use"] + rows["bytes of free spans"]
    assert spans + rows["bytes of free spans given back to the kernel"] == said["generic.heap_size"]
    report = answer(target, "malloc_stats")
    assert report["totals"]["tcmalloc_allocated_bytes"] == said["generic.current_allocated_bytes"]
    assert rows["bytes in the transfer cache"] == said["tcmalloc.transfer_cache_free_bytes"]
    # truth_stop() opened files after tcmalloc had said this: blocks moved from a cache to the program and back.
    assert abs(rows["bytes in threads' caches"] - said["tcmalloc.thread_cache_free_bytes"]) < 64 << 10
    assert rows["threads' caches with objects"] == 4  # main, and three of seven threads that have not exited


@pytest.mark.parametrize(("userland", "which", "env"), taken())
def test_its_own_figures(userland: str, which: str, env: dict[str, str]) -> None:
    compare(tcmallocs.take("tcstats", userland=userland, which=which, env=env))


@pytest.mark.parametrize("variant", ["dynamic", "static"])
def test_its_own_figures_when_linked(variant: str) -> None:
    compare(tcmallocs.linked("tcstats", variant))


@pytest.mark.parametrize("userland", ["bookworm", "trixie", "sid"])
def test_sampled_blocks(userland: str) -> None:
    """A sampled block has a span of its own, whose list of objects is the stack of its allocation."""
    made = tcmallocs.take("tcstats", userland=userland, which=FULL, env=SAMPLED)
    heap = find_heap(judge.open_core(made))
    assert dict(walked(heap).statistics())["sampled blocks"] > 1000
    found = judge.problems(heap, made.truth)
    # The usable size of a sampled small block is its pages.
    assert [each for each in found if not each.startswith("usable size")] == []


def test_who_holds_a_free_block() -> None:
    made = tcmallocs.take("tcstats")
    target = judge.open_core(made)
    heap = find_heap(target)
    freed = {block.address for block in heap.blocks(FREE)}
    told = [address for address in made.truth.addresses("freed") if address in freed][:200]
    lines = {text(target, "whatis", hex(address)).split(", freed")[-1] for address in told}
    tids = {thread.tid for thread in target.threads()}
    assert any(f"in the cache of thread {tid}" in line for line in lines for tid in tids)
    assert any("in the list of its span" in line or "in the central cache" in line for line in lines)
    (start, end), *_rest = walked(heap).owned
    assert "tcmalloc keeps for its own records" in text(target, "whatis", hex(start + 64))
    assert end > start


PYTHON = """
import ctypes, os
libc = ctypes.CDLL(None)
kept = [{str(i): [i] * (i % 50)} for i in range(20000)]
kept = kept[::2]
value = ctypes.c_size_t()
libc.MallocExtension_GetNumericProperty(b"generic.current_allocated_bytes", ctypes.byref(value))
os.write(2, b"%d" % value.value)
os.abort()
"""


def test_python_with_tcmalloc(tmp_path: Path) -> None:
    """CPython with PYTHONMALLOC=malloc: a real program with hundreds of thousands of blocks. Nothing is leaked."""
    script = tmp_path / "script.py"
    script.write_text(PYTHON)
    cores.check_core_pattern()
    (tmp_path / "run").mkdir()
    shell = 'ulimit -c unlimited; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", "/usr/bin/python3", "-s", str(script)],
        cwd=tmp_path / "run",
        env={**os.environ, "LD_PRELOAD": tcmallocs.library(), "PYTHONMALLOC": "malloc"},
        capture_output=True,
        check=False,
    )
    core = next(path for path in (tmp_path / "run").iterdir() if path.name.startswith("core"))
    said = int(done.stderr.split()[0])
    target = CoreFile(str(core))
    heap = find_heap(target)
    one = walked(heap)
    assert one.inner is not None
    live = one.inner.object_bytes - sum(one.inner.free)
    assert abs(live - said) < 4096
    assert live > 5 << 20
    assert not one.problems


def test_other_commands() -> None:
    made = tcmallocs.take("graph")
    target = judge.open_core(made)
    leaked = {int(row["address"], 16) for row in answer(target, "walk", "leakbuf")["tables"]["leakbuf"]}
    assert leaked == made.truth.leaked
    assert answer(target, "heapsizes")["totals"]["leaked_count"] == len(made.truth.leaked)
    assert "tcmalloc-32768" in text(target, "types")
    assert "graph`parts" in text(target, "owners")
    assert "2,280 blocks" in text(target, "triage")
    clean = answer(target, "heapcheck", "--fail-on-damage")
    assert clean["status"] == 0
    assert clean["verdict"] is None or clean["verdict"]["possible"]
