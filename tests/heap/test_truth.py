"""findleaks against programs that know the answer: every leak, and nothing else, on every way to a core.

The whole matrix runs on the host's glibc, a part of it on the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import answers, cores, judge, software
from fixtures.cores import CoreSet
from fixtures.heaps import glibc, others
from fixtures.mallocinfo import MallocInfo
from fixtures.programs import PROGRAMS

#: Nearly every block, and the tcache, has a mapping of its own.
ALL_MAPPED = "glibc.malloc.mmap_threshold=64:glibc.malloc.mmap_max=100000"


class Case(NamedTuple):
    program: str
    mode: str
    how: str
    variant: str
    userland: str
    tunables: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, self)).replace("glibc.malloc.", "")

    def take(self, attempt: int = 1) -> CoreSet:
        """Return a core of the case. Another attempt is another run of the program: its heap lies elsewhere."""
        env = {"GLIBC_TUNABLES": self.tunables} if self.tunables else {}
        if attempt > 1:
            env["DMODS_ATTEMPT"] = str(attempt)
        return cores.take(self.program, self.how, self.variant, self.userland, mode=self.mode, env=env or None)

    @property
    def low(self) -> bool:
        """Return whether the heap lies where sizes have their values, too (brk begins within 1 GiB of 0x400000)."""
        return self.variant in ("static", "no-pie")


#: A block of that name may be answered wrongly there: what said that it is free is what the program destroyed.
UNKNOWABLE = {
    ("corrupt", "cyclic-tcache"): {"fast"},
    ("corrupt", "cyclic-fastbin"): {"fast"},
    ("corrupt", "wild-tcache"): {"fast"},
    ("inmalloc", "tcache"): {"fast"},
    ("inmalloc", "fastbin"): {"fast"},
}

#: Wrong answers that are known (docs/LIMITS.md), by (program, mode), and why.
KNOWN = {("anchors", "shared-file"): "no core holds a MAP_SHARED file by default, and nothing proves its bytes"}

#: Where a heap lies low, a number may anchor something in some MB of heap. Likely to be right are programs with little
#: heap; a problem that another run does not have is such a number.
SMALL = ("sizes", "anchors", "registers", "stale", "freed", "forked", "cxx", "inmalloc", "corrupt")


#: Programs that the quick tests run in every way; of the others each is run in one.
EVERY_WAY = ("freed", "anchors")


#: Modes like another one, which the quick tests run, and programs that take many seconds.
THOROUGH = (
    ("forkers", ""),
    ("forkers", "own-stacks"),
    ("ownstacks", "main-altstack"),
    ("gopher", ""),
    ("millions", ""),
)


def matrix() -> Iterator[Case]:
    for program in PROGRAMS.values():
        # smash is about what heapcheck finds; packed and rings have tests of their own (test_unaligned.py). tcstats is
        # for tcmalloc: the C library may take a block of malloc that the program has freed.
        if program.name in ("nomalloc", "freestanding", "smash", "packed", "rings", "tcstats"):
            continue
        for mode in program.modes:
            for how in ("kernel", "gcore") if program.gcore else ("kernel",):
                yield Case(program.name, mode, how, "dynamic", "host")
            # What a variant changes is where the arena, TLS and the first blocks lie; one way to a core shows it.
            for variant in ("static", "static-pie", "no-pie", "stripped"):
                if variant not in program.variants:
                    continue
                if (variant != "static" or program.name in SMALL) and mode in ("", program.modes[0], "no-brk"):
                    yield Case(program.name, mode, "kernel", variant, "host")
    for userland in ("bullseye", "trixie", "sid"):
        for name in (*("sizes", "shapes", "graph", "anchors", "stale", "freed", "arenas", "cxx", "forked"), "remapped"):
            yield Case(name, "", "kernel", "dynamic", userland)
        for name in ("graph", "freed"):
            yield Case(name, "", "gcore", "dynamic", userland)
            yield Case(name, "", "kernel", "static-pie", userland)
        yield Case("forkers", "new-threads", "kernel", "dynamic", userland)
    yield from own_stacks()
    yield from other_machines()
    yield from tuned()


def own_stacks() -> Iterator[Case]:
    for userland in ("sid", "i386-bookworm", "arm64-bookworm"):
        for mode in PROGRAMS["ownstacks"].modes:
            if (userland, mode) != ("arm64-bookworm", "stale"):  # an old address of a page disproves one of the bounds
                yield Case("ownstacks", mode, "kernel", "dynamic", userland)


def tuned() -> Iterator[Case]:
    for tunables in ("tcache_count=0", "tcache_count=20", "mxfast=0", "arena_max=2"):
        for name in ("graph", "freed"):
            yield Case(name, "", "kernel", "dynamic", "host", f"glibc.malloc.{tunables}")
    for userland in ("host", "bullseye", "sid"):
        yield Case("freed", "", "kernel", "dynamic", userland, ALL_MAPPED)


def other_machines() -> Iterator[Case]:
    """i386 by the kernel and by the host's gdb, AArch64 by qemu-user. More of them: scripts/matrix."""
    for userland in ("i386-bookworm", "arm64-bookworm"):
        for name in ("sizes", "graph", "anchors", "stale", "freed", "arenas", "forked", "cxx"):
            yield Case(name, "", "kernel", "dynamic", userland)
        yield Case("graph", "", "kernel", "static-pie", userland)
    for mode in PROGRAMS["vectors"].modes:  # qemu-user's cores have no vector registers
        yield Case("vectors", mode, "kernel", "dynamic", "i386-bookworm")
    yield Case("remapped", "", "kernel", "dynamic", "i386-bookworm")
    for name in ("graph", "stale", "vectors"):
        yield Case(name, "", "gcore", "dynamic", "i386-bookworm")


def parameters() -> Iterator[object]:
    for case in matrix():
        reason = KNOWN.get((case.program, case.mode))
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        # Every program in one way, and a few in every way.
        usual = case[2:] == ("kernel", "dynamic", "host", "") and case[:2] not in THOROUGH
        if not usual and case.program not in EVERY_WAY:
            marks.append(pytest.mark.thorough("another way of it is tested"))
        yield pytest.param(case, id=str(case), marks=marks)


def _problems(case: Case, made: CoreSet) -> list[str]:
    excused = UNKNOWABLE.get((case.program, case.mode), set())
    return judge.problems(find_heap(judge.open_core(made)), made.truth, excused)


@pytest.mark.parametrize("case", list(parameters()))
def test_every_leak_and_nothing_else(case: Case) -> None:
    problems = _problems(case, case.take())
    if problems and case.low:
        problems = _problems(case, case.take(attempt=2))
    assert not problems, f"{len(problems)} problems, among them:\n" + "\n".join(problems[:20])


@pytest.mark.quick("kernel")
@pytest.mark.parametrize("how", ["kernel", "gcore"])
def test_the_command_says_the_same(how: str) -> None:
    made = cores.take("graph", how)
    tables = answers.by_name(answers.typed("findleaks", made.core, "--indirect"))
    truth = made.truth
    direct = len(truth.addresses("direct")) + len(truth.cycles)
    assert sum(row["leaked"] for name in ("leaks", "oversized") for row in tables.get(name, [])) == direct
    assert len(tables["indirect"]) == len(truth.leaked) - direct
    usable = sum(truth.blocks[address].usable for address in truth.leaked)
    listed = sum(row["bytes"] for name in ("leaks", "oversized") for row in tables.get(name, []))
    assert listed + sum(row["size"] for row in tables["indirect"]) == usable


@pytest.mark.thorough("it builds a Go program")
def test_the_heap_of_another_runtime_is_walked() -> None:
    heap = find_heap(judge.open_core(cores.take("gopher")))
    assert [one.name for one in others(heap)] == ["Go"]
    assert not any("a Go program" in note for note in heap.index.dump_notes())
    assert not others(find_heap(judge.open_core(cores.take("oxide"))))


@pytest.mark.parametrize("userland", ["host", "bullseye", "trixie", "sid"])
@pytest.mark.parametrize("program", ["freed", "arenas"])
def test_arenas_are_those_of_malloc_info(program: str, userland: str) -> None:
    made = cores.take(program, userland=userland)
    heap = find_heap(judge.open_core(made))
    account = MallocInfo.parse(made.truth.malloc_info)
    assert len(account.arenas) == len(glibc(heap).all)
    assert account.system == sum(arena.system_mem for arena in glibc(heap).all)


@pytest.mark.quick("redis", "python-malloc")
@pytest.mark.parametrize("name", ["redis", "python", "python-malloc", "gdb"])
def test_real_software_adds_up_to_malloc_info(name: str, tmp_path: Path) -> None:
    """The bytes of each arena, what is free in all, and the mapped blocks: to the byte what the process said."""
    with software.start(name, tmp_path) as process:
        made = software.snapshot(process, tmp_path)
    heap = find_heap(CoreFile(str(made.core)))
    assert heap.notes == []
    assert sorted(arena.system_mem for arena in glibc(heap).all) == sorted(
        arena.system for arena in made.account.arenas
    )
    totals = answers.typed("malloc_stats", made.core)["totals"]
    assert totals["free_bytes"] + totals["top_bytes"] == made.account.free
    assert (totals["mmapped_count"], totals["mmapped_bytes"]) == (made.account.mmap_count, made.account.mmap_bytes)


@pytest.mark.moving
@pytest.mark.thorough("it needs the sid userland")
def test_mappings_that_were_resized_add_up() -> None:
    """glibc 2.43 counts a header too much for each: that is no contradiction."""
    made = cores.take("graph", userland="sid", env={"GLIBC_TUNABLES": ALL_MAPPED})
    heap = find_heap(judge.open_core(made))
    assert len(glibc(heap).layout.runs) > 2500
    assert heap.notes == []
    assert not judge.problems(heap, made.truth, set())
