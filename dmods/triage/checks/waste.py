"""Memory that the allocator holds and the program does not use: too many arenas, or memory that is not trimmed."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.triage.facts import ProcessFacts
from dmods.triage.finding import CERTAIN, LIKELY, WASTE, Check, Evidence, Finding


def run(facts: ProcessFacts) -> Iterator[Finding]:
    """Yield the waste of each allocator, with what would give memory back."""
    for one in facts.heap.heaps:
        for each in one.waste():
            yield Finding(
                each.kind,
                WASTE,
                CERTAIN if each.certain else LIKELY,
                each.what,
                each.remedy,
                (Evidence(*each.place),) if each.place is not None else (),
                tuple(each.next),
                weight=each.bytes,
            )


CHECK = Check(
    "waste",
    "at least 64 MB, and half of what the arenas hold, are free",
    run,
    needs=("heap",),
    seconds=60,
)
