"""Memory that an allocator holds and the program does not use: too many arenas, or memory that is not trimmed."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.allocators.directory import release
from dmods.base.dataclass import replace
from dmods.finding import Check, Measured, Said
from dmods.triage.facts import ProcessFacts


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield what each allocator has in use, and its waste, with what would give memory back."""
    for one in facts.heap.heaps:
        text = one.usage()
        if text is not None:
            yield Measured(text)
        for each in one.waste():
            yield each if each.remedy else replace(each, remedy=release(one))


CHECK = Check(
    "waste",
    "at least 64 MB, and half of what an allocator or its arenas hold, are free",
    run,
    needs=("heap",),
    seconds=60,
)
