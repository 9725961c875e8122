"""Every command that counts blocks has the same definition of a block in use.

A block in use is one that the program allocated and did not free, leaked or not. What an allocator took for itself
(glibc's tcaches, jemalloc's) is none of the program's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers, audited, cores, jemallocs
from fixtures.cores import CoreSet
from tests.auditkit import answer
from tests.corekit import HERE, compile_c, kernel_core
from tests.quick import only

PROGRAMS = ("graph", "sizes", "freed", "arenas", "shapes", "anchors", "callers", "ownstacks", "vectors", "mainarena")
WAYS: dict[str, Callable[[str], CoreSet]] = {
    "plain": cores.take,
    "gcore": lambda name: cores.take(name, "gcore"),
    "jemalloc": jemallocs.take,
    "audited": audited.take,
    "guards": lambda name: audited.take(name, "audit,log,guards"),
}
ALL = [(name, "plain") for name in PROGRAMS]
ALL += [(name, way) for name in ("graph", "freed", "callers") for way in WAYS if way != "plain"]
QUICK = [(name, "plain") for name in ("graph", "freed", "arenas", "anchors")]
QUICK += [("graph", "jemalloc"), ("callers", "audited"), ("graph", "guards")]


@pytest.mark.quick("freed-plain", "graph-jemalloc", "callers-audited", "graph-guards")
@pytest.mark.parametrize(("name", "way"), only(QUICK, ALL))
def test_the_commands_agree(name: str, way: str) -> None:
    target = CoreFile(str(WAYS[way](name).core))
    assert Path(target.path or "").exists()
    leaks = answer(target, "findleaks")["totals"]
    sizes = answer(target, "heapsizes")["totals"]
    blocks = answer(target, "walk", "buf")["tables"]["buf"]
    lost = answer(target, "walk", "leakbuf")["tables"]["leakbuf"]
    owners = answer(target, "owners")["totals"]
    types = answer(target, "types")["totals"]
    stats = answer(target, "malloc_stats")["totals"]
    in_use = (len(blocks), sum(block["size"] for block in blocks))
    assert in_use == (sizes["live_count"], sizes["live_bytes"])
    assert in_use == (types["count"], types["bytes"])
    assert in_use == (stats["live_count"], stats["live_bytes"])
    assert in_use[1] == owners["alone_bytes"] + owners["shared_bytes"] + owners["leaked_bytes"]
    leaked = (len(lost), sum(block["size"] for block in lost))
    assert leaked == (leaks["leaked_count"], leaks["leaked_bytes"]) == (sizes["leaked_count"], sizes["leaked_bytes"])
    assert leaked[1] == owners["leaked_bytes"]
    suspects = answer(target, "suspects")["totals"]
    assert suspects["live_bytes"] == owners["alone_bytes"] + owners["shared_bytes"]
    assert suspects["leaked_bytes"] == leaked[1]
    # Nothing is counted twice, and nothing is left out.
    parts = ("alone", "shared", "leaked", "free", "top", "never", "own")
    assert owners["heap_bytes"] == suspects["heap_bytes"] == sum(owners[f"{part}_bytes"] for part in parts)
    assert owners["free_bytes"] == sizes["free_bytes"]


def test_a_cut_core_calls_nothing_leaked(tmp_path: Path) -> None:
    """A static program has its arena below its heap, so a part of the heap is there; the stacks are not."""
    program = compile_c(HERE / "commands" / "holds.c", tmp_path / "holds", "-pthread", "-static", "-no-pie")
    core = kernel_core(program, tmp_path, "queue")
    whole = answers.typed("owners", core)["totals"]
    assert whole["unknown_bytes"] == 0
    os.truncate(core, core.stat().st_size * 7 // 10)
    report = {
        name: json.loads(answers.dmods(name, core, "--json").stdout) for name in ("owners", "findleaks", "heapsizes")
    }
    assert not any(report[name]["verdict"]["possible"] for name in ("owners", "findleaks"))
    owners, sizes = report["owners"]["totals"], report["heapsizes"]["totals"]
    assert (owners["leaked_bytes"], sizes["leaked_bytes"]) == (None, None)
    assert report["findleaks"]["totals"]["leaked_bytes"] is None
    assert owners["heap_bytes"] == whole["heap_bytes"]
    parts = ("alone", "shared", "unknown", "free", "top", "never", "own")
    assert sum(owners[f"{part}_bytes"] for part in parts) == owners["heap_bytes"]
    assert owners["alone_bytes"] + owners["shared_bytes"] + owners["unknown_bytes"] == sizes["live_bytes"] > 1 << 20
    text = answers.dmods("owners", core).stdout
    held = {row["how"] for row in answers.by_name(report["owners"])["owners"]}
    assert "unknown" in held
    assert "leaked" not in held
    assert "the whole heap" not in text
    assert "and what the dump lacks" in text
