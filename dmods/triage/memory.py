"""Where the memory of a process went: parts that add up to all that it has touched."""

from __future__ import annotations

from dmods.base.sizes import human_size
from dmods.heap.ledger import ANONYMOUS, CODE, HEAP, IN_USE, STACKS, Use, find_ledger
from dmods.triage.answer import Memory, Part
from dmods.triage.facts import ProcessFacts

_TOTAL = "memory that the process has touched"
_WORTH = 0.1  # of the bytes of a part: so many that were never touched are worth a word


def memory_by_use(facts: ProcessFacts) -> Memory:
    """Return the parts. The heap is split into blocks in use, leaked and free, and the allocator's own memory."""
    ledger = find_ledger(facts.target)
    parts = []
    for use in ledger.uses:
        if use.touched and use.name != CODE:
            heap = "heap: " if use.name in HEAP else ""
            parts.append(Part(f"{heap}{ledger.shown(use)}", use.touched, _note(facts, use), use.bytes))
    return Memory(parts, _TOTAL, ledger.untouched, ledger.values())


def _note(facts: ProcessFacts, use: Use) -> str:
    notes = []
    if use.name == IN_USE:
        judged = find_ledger(facts.target).judged
        rows = facts.heap.marks.engine.sizes()
        count = sum(live if judged else live + leaked for _size, live, _free, leaked, _own in rows)
        notes.append(f"{count:,} block{'' if count == 1 else 's'}")
    if use.name in (IN_USE, STACKS) and use.untouched > _WORTH * use.bytes:
        notes.append(f"of {human_size(use.bytes)}")
    if use.name == ANONYMOUS and facts.large_mappings:
        first = facts.large_mappings[0]
        what = first.public if facts.private else first.phrase
        notes.append(f"the largest mapping, {human_size(first.mapping.size)}, holds {what}")
    return "; ".join(notes)
