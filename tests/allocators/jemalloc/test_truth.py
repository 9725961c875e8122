"""findleaks under jemalloc, against programs that know the answer: in the releases that Debian has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE, OWN
from dmods.heap.heap import ProcessHeap, find_heap
from fixtures import jemallocs
from fixtures.cores import CoreSet
from fixtures.heaps import jemalloc_heaps

PROGRAMS = (
    "sizes",
    "shapes",
    "graph",
    "anchors",
    "stale",
    "freed",
    "arenas",
    "cxx",
    "forked",
    "registers",
    "huge",
    "jecalls",
)

#: Values of MALLOC_CONF in the quick tests.
QUICK_CONFIGURATIONS = ("tcache:false", "percpu_arena:percpu,background_thread:true")

#: Blocks of which the truth holds for glibc alone, and why.
GLIBC_ONLY = {
    # jemalloc has no headers: what points there, points into the block before or behind.
    "stale": {"past-the-end", "at-header"},
}


class Case(NamedTuple):
    program: str
    how: str
    userland: str
    conf: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, self))

    def take(self) -> CoreSet:
        return jemallocs.take(self.program, self.how, self.userland, self.conf)


def matrix() -> Iterator[Case]:
    for program in PROGRAMS:
        yield Case(program, "kernel", "host")
    for program in ("graph", "freed", "anchors"):
        yield Case(program, "gcore", "host")
    for userland in ("bullseye", "trixie", "sid"):  # 5.2.1; 5.3.0 made for 57 address bits; 5.3.1
        for program in ("sizes", "graph", "freed", "forked", "anchors", "jecalls"):
            yield Case(program, "kernel", userland)
    yield Case("freed", "kernel", "arm64-bookworm")  # built for pages of 64 KiB
    for conf in (
        "tcache:false",
        "narenas:1",
        "retain:false",
        "junk:true",
        "percpu_arena:percpu,background_thread:true",
    ):
        yield Case("graph", "kernel", "host", conf)
    for conf in ("dirty_decay_ms:0,muzzy_decay_ms:0", "oversize_threshold:65536,dss:primary", "slab_sizes:1-4096:17"):
        yield Case("graph", "kernel", "host", conf)
    for conf in ("hpa:true", "san_guard_small:1,san_guard_large:1", "lg_tcache_max:20,metadata_thp:always"):
        yield Case("jecalls", "kernel", "host", conf)


def open_core(made: CoreSet) -> CoreFile:
    return CoreFile(str(made.core), sysroot=str(made.sysroot) if made.sysroot else None)


def problems_of(made: CoreSet, heap: ProcessHeap) -> list[str]:
    """Return the differences between the heap and what the program knows."""
    excused = GLIBC_ONLY.get(made.truth.program["program"], set())
    truth = made.truth
    blocks = {address: block for address, block in truth.blocks.items() if block.name not in excused}
    spared = truth.blocks.keys() - blocks.keys()
    found = {block.address: block for block in heap.blocks(LIVE, FREE, DIRECT, INDIRECT, OWN)}
    of_state = {
        state: {address for address, block in found.items() if block.state == state and address not in spared}
        for state in (LIVE, FREE, DIRECT, INDIRECT)
    }
    leaked, known = of_state[DIRECT] | of_state[INDIRECT], truth.leaked - spared

    def names(what: str, addresses: set[int]) -> list[str]:
        return [f"{what}: {truth.describe(address)}" for address in sorted(addresses)]

    freed = {address for address, block in blocks.items() if block.state == "freed"}
    return [
        *names("missed", known - leaked),
        *names("no leak, and reported", leaked - known),
        *names("in use, and not found", truth.addresses("live") - of_state[LIVE]),
        *names("freed, and said to be in use", freed & (leaked | of_state[LIVE])),
        *(text for text in truth.direct_problems(of_state[DIRECT] | spared & truth.leaked)),
        *(
            f"usable size {found[address].size}, not {block.usable}: {truth.describe(address)}"
            for address, block in blocks.items()
            if block.state != "freed" and address in found and found[address].size != block.usable
        ),
    ]


def parameters() -> Iterator[object]:
    for case in matrix():
        left_out = "another configuration is tested" if case.conf not in ("", *QUICK_CONFIGURATIONS) else ""
        left_out = left_out or ("its core has 100 MB" if case.program == "jecalls" else "")
        marks = [pytest.mark.thorough(left_out)] if left_out else []
        yield pytest.param(case, id=str(case), marks=marks)


@pytest.mark.quick(
    "shapes-kernel-host",
    "anchors-kernel-host",
    "stale-kernel-host",
    "freed-kernel-host",
    "forked-kernel-host",
    "huge-kernel-host",
    "graph-gcore-host",
    "graph-kernel-host-percpu_arena:percpu,background_thread:true",
)
@pytest.mark.parametrize("case", list(parameters()))
def test_every_leak_and_nothing_else(case: Case) -> None:
    made = case.take()
    heap = find_heap(open_core(made))
    assert [each.one.extents.fault_count for each in jemalloc_heaps(heap)] == [0]
    problems = problems_of(made, heap)
    assert not problems, f"{len(problems)} problems, among them:\n" + "\n".join(problems[:20])
    assert heap.notes == []
