"""maps, compared with /proc/PID/maps as the program saved it."""

from __future__ import annotations

from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.mapping_kinds import KINDS, classify_mappings
from fixtures import answers, cores
from tests.corekit import Crash


def run(*words: str) -> str:
    return answers.printed("maps", *words)


@pytest.fixture(scope="module")
def found(crashed: Crash) -> Any:
    return answers.typed("maps", crashed.core, "-v")


def test_kinds_are_what_proc_maps_calls_them(crashed: Crash) -> None:
    named = {}
    for line in (crashed.where / "maps").read_text().splitlines():
        extent, flags, _offset, _device, _inode, *path = line.split(maxsplit=5)
        start = int(extent.split("-")[0], 16)
        name = path[0] if path else ""
        if name.startswith("/dev/zero"):
            named[start] = "shared"
        elif name.startswith("/"):
            named[start] = "file text" if "x" in flags else "file data"
        elif name.startswith("["):
            names = {"[heap]": "heap", "[stack]": "stack", "[vdso]": "vdso", "[vvar]": "vdso", "[vsyscall]": "vdso"}
            named[start] = names.get(name, "vdso")
        elif flags.startswith("---"):
            named[start] = "reserved"
    core = CoreFile(str(crashed.core))
    by_start = {mapping.start: kind for mapping, kind in classify_mappings(core)}
    assert {start: by_start.get(start) for start in named} == named
    stacks = [mapping for mapping, kind in classify_mappings(core) if kind == "thread stack"]
    others = [thread.registers["rsp"] for thread in core.threads() if thread.tid != core.pid]
    assert sorted(any(sp in mapping for mapping in stacks) for sp in others) == [True] * 3
    assert len(stacks) == 3


def test_sums(found: Any, crashed: Crash) -> None:
    tables = {table["name"]: table["rows"] for table in found["tables"]}
    truth = crashed.maps()
    vsyscall = [row for row in tables["mappings"] if int(row["start"], 16) >= 1 << 63]
    assert sum(row["bytes"] for row in tables["mappings"]) - sum(row["bytes"] for row in vsyscall) == sum(
        end - start for start, end, *_ in truth
    )
    for key in ("count", "bytes", "dumped"):
        assert sum(row[key] for row in tables["kinds"]) == found["totals"][key]
    assert [row["kind"] for row in tables["kinds"]] == [
        kind for kind in KINDS if any(row["kind"] == kind for row in tables["mappings"])
    ]


def test_text_and_json_agree(found: Any, crashed: Crash) -> None:
    rows = next(table["rows"] for table in found["tables"] if table["name"] == "kinds")
    *lines, total = run(str(crashed.core)).partition("\n\n")[0].splitlines()[1:]
    assert [(line[:12].strip(), *map(int, line[12:].split())) for line in lines] == [
        tuple(row.values()) for row in rows
    ]
    assert list(map(int, total.split()[1:])) == [found["totals"][key] for key in ("count", "bytes", "dumped")]


def test_guard_pages_of_a_gcore_core_are_no_memory(gcored: Crash) -> None:
    core = CoreFile(str(gcored.core))
    guards = {start for start, _end, flags, _offset, path in gcored.maps() if flags == "---" and path is None}
    reserved = {mapping.start for mapping, kind in classify_mappings(core) if kind == "reserved"}
    assert len(guards & reserved) >= 3
    assert reserved <= guards


def of_kind(program: str, kind: str, **how: Any) -> list[tuple[int, int]]:
    core = CoreFile(str(cores.take(program, **how).core))
    return [(mapping.start, mapping.end) for mapping, its in classify_mappings(core) if its == kind]


@pytest.mark.parametrize("how", ["kernel", "gcore"])
def test_the_stack_of_an_exited_thread_is_a_thread_stack(how: str) -> None:
    """In ``freed`` one thread lives and one has exited. Both had the default stack of 8 MiB with a guard page."""
    stacks = of_kind("freed", "thread stack", how=how)
    assert [end - start for start, end in stacks] == [8 << 20] * 2


@pytest.mark.parametrize("how", ["kernel", "gcore"])
def test_heaps_and_arenas_hold_the_blocks(how: str) -> None:
    taken = cores.take("sizes", how)
    core = CoreFile(str(taken.core))
    ranges = [(mapping.start, mapping.end) for mapping, kind in classify_mappings(core) if kind in ("heap", "arena")]
    for block in taken.truth.blocks.values():
        assert any(start <= block.address < end for start, end in ranges), block
    arenas = of_kind("freed", "arena", how=how)
    assert all(start % (64 << 20) == 0 for start, _end in arenas)
    assert len(arenas) == 2


@pytest.mark.parametrize("mode", ["overrun", "overrun-top", "wild-bins", "cyclic-fastbin"])
def test_a_damaged_heap_is_still_a_heap(mode: str) -> None:
    taken = cores.take("corrupt", mode=mode)
    ranges = of_kind("corrupt", "heap", mode=mode)
    assert any(start <= address < end for address in taken.truth.blocks for start, end in ranges)
    whole = [mapping.size for mapping in CoreFile(str(taken.core)).mappings()]
    assert sum(mapping.size for mapping, _kind in classify_mappings(CoreFile(str(taken.core)))) == sum(whole)


@pytest.mark.parametrize("program", ["nomalloc", "freestanding"])
def test_without_malloc_there_is_no_heap_but_a_stack(program: str) -> None:
    variant = "static" if program == "freestanding" else "dynamic"
    assert of_kind(program, "heap", variant=variant) == []
    assert len(of_kind(program, "stack", variant=variant)) == 1
