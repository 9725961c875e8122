"""Programs under musl of every release that Debian packages: every leak and nothing else, and exact sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE, OWN
from dmods.heap.heap import find_heap
from fixtures import answers, judge, musls
from fixtures.cores import CoreSet
from fixtures.heaps import others

IN_USE = (LIVE, DIRECT, INDIRECT, OWN)

# The words of whatis for what stands before a block: its slot's header, its group's, or that of its own mapping.
HEADER = re.compile(r"beside its block|is in the (group at .*|mapping at .* its meta at 0x[0-9a-f]+\)), in no slot")


class Case(NamedTuple):
    program: str
    mode: str = ""
    release: str = "bookworm"
    variant: str = "dynamic"
    how: str = "kernel"
    stripped: bool = False
    userland: str = "host"

    def __str__(self) -> str:
        return "-".join(filter(None, (*self[:5], "stripped" if self.stripped else "", self.userland)))

    def take(self) -> CoreSet:
        return musls.take(
            self.program,
            self.how,
            self.release,
            self.variant,
            mode=self.mode,
            stripped=self.stripped,
            userland=self.userland,
        )


#: (program, mode). swapcontext and io_uring are not in musl.
PROGRAMS = (
    *((name, "") for name in ("sizes", "shapes", "graph", "anchors", "stale", "freed", "arenas", "remapped")),
    *((name, "") for name in ("registers", "handlers", "forked", "callers", "huge", "muslthreads", "ledger")),
    ("graph", "exact"),
    *(("forkers", mode) for mode in ("", "from-thread", "own-stacks", "new-threads")),
)
FEW = ("sizes", "graph", "anchors", "stale", "freed", "forked", "muslthreads", "ledger")


def matrix() -> Iterator[Case]:
    for name, mode in PROGRAMS:
        yield Case(name, mode)
        if name != "handlers":  # it loads a plugin
            yield Case(name, mode, variant="static")
    for release in musls.RELEASES:
        for name in FEW:
            if release != "bookworm":
                yield Case(name, release=release)
                yield Case(name, release=release, variant="static")
    for name in ("graph", "anchors", "freed", "muslthreads"):
        yield Case(name, variant="static-pie", stripped=True)
        yield Case(name, variant="static", stripped=True)
        yield Case(name, stripped=True)
        if name != "anchors":
            yield Case(name, how="gcore")
            yield Case(name, how="gcore", variant="static")
    for name in ("sizes", "graph", "freed", "anchors", "ledger"):
        yield Case(name, userland="i386-bookworm")
        yield Case(name, variant="static", userland="i386-bookworm")
        yield Case(name, variant="static", userland="arm64-bookworm")  # qemu-user does not run musl's dynamic linker


@pytest.mark.thorough("it needs musl")
@pytest.mark.parametrize("case", list(matrix()), ids=str)
def test_every_leak_and_nothing_else(case: Case) -> None:
    made = case.take()
    heap = find_heap(judge.open_core(made))
    problems = judge.problems(heap, made.truth)
    assert not problems, f"{len(problems)} problems, among them:\n" + "\n".join(problems[:20])
    assert not heap.notes
    assert [one.name for one in others(heap)] == ["musl's malloc"]


@pytest.mark.thorough("it needs musl")
@pytest.mark.parametrize("variant", ["dynamic", "static"])
@pytest.mark.parametrize("release", musls.RELEASES)
def test_count_and_bytes_are_those_of_the_programs_ledger(release: str, variant: str) -> None:
    """To the byte. One block more is libc's own: the FILE that the truth's fdopen() made, with its buffer."""
    made = musls.take("ledger", release=release, variant=variant)
    heap = find_heap(judge.open_core(made))
    blocks = list(heap.blocks(*IN_USE))
    others = [block for block in blocks if block.address not in made.truth.blocks]
    assert len(blocks) - len(others) == made.truth.facts["count"]
    assert sum(block.size for block in blocks if block not in others) == made.truth.facts["bytes"]
    assert [block.state for block in others] == [LIVE]
    assert 1000 < others[0].size < 1500


@pytest.mark.thorough("it needs musl")
@pytest.mark.parametrize("variant", ["dynamic", "static"])
def test_the_commands(variant: str) -> None:
    made = musls.take("ledger", variant=variant)
    facts, truth = made.truth.facts, made.truth
    leaked = [truth.blocks[address] for address in truth.leaked]
    said = answers.typed("findleaks", made.core)
    assert said["totals"]["direct_count"] == len(leaked)
    assert said["totals"]["direct_bytes"] == sum(block.size for block in leaked)
    figures = {
        row["what"]: row["value"] for row in answers.by_name(answers.typed("malloc_stats", made.core))["allocator"]
    }
    file = figures["bytes in use"] - facts["bytes"]  # libc's FILE
    assert figures["blocks in use"] == facts["count"] + 1
    assert 1000 < file < 1500
    used, free = figures["bytes of slots in use"], figures["free bytes"]
    assert figures["bytes in use"] < used
    assert used + free < figures["bytes of memory"]
    checked = answers.typed("heapcheck", made.core)
    assert checked["totals"]["contradictions"] == 0
    assert not checked["notes"]
    some = min(truth.blocks)
    assert "musl's malloc" in answers.printed("whatis", made.core, hex(some))
    sizes = answers.typed("heapsizes", made.core)
    assert sizes["tables"]
    for header in (some - 8, max(truth.blocks.values(), key=lambda block: block.size).address - 8):
        assert HEADER.search(answers.printed("whatis", made.core, hex(header)))
    freed = musls.take("freed", variant=variant)
    free = [block.address for block in find_heap(judge.open_core(freed)).blocks(FREE)]
    slot = next(at for at in free if at in freed.truth.addresses("freed"))
    said_of = answers.printed("whatis", freed.core, hex(slot))
    assert re.search(r"freed from malloc-\d+: slot \d+ of the group at 0x", said_of)
