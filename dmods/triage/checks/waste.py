"""Memory that an allocator holds and the program does not use: too many arenas, or memory that is not trimmed."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.allocators.directory import release
from dmods.triage.facts import ProcessFacts
from dmods.triage.finding import CERTAIN, LIKELY, POSSIBLE, WASTE, Check, Evidence, Finding, Measured, Said


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield what each allocator has in use, and its waste, with what would give memory back."""
    for one in facts.heap.heaps:
        text = one.usage()
        if text is not None:
            yield Measured(text)
        for each in one.waste():
            yield Finding(
                each.kind,
                WASTE,
                CERTAIN if each.certain else LIKELY,
                each.what,
                each.remedy or release(one),
                (Evidence(*each.place),) if each.place is not None else (),
                tuple(each.next),
                weight=each.bytes,
                remedy_confidence=LIKELY if each.helps else POSSIBLE,
                alternative=each.alternative,
            )


CHECK = Check(
    "waste",
    "at least 64 MB, and half of what an allocator or its arenas hold, are free",
    run,
    needs=("heap",),
    seconds=60,
)
