"""Where the memory of a process went: parts that add up to all of its memory."""

from __future__ import annotations

from collections import Counter

from dmods.base.sizes import human_size
from dmods.heap.mapping_kinds import classify_mappings
from dmods.triage.answer import Memory, Part
from dmods.triage.facts import ProcessFacts

_TOTAL = "mapped memory that can be accessed"
# Kinds of mappings that are not the heap's, in the order of the bar.
_OTHERS = {
    "anon": "other anonymous memory",
    "thread stack": "stacks of threads",
    "stack": "stack of the first thread",
    "shared": "shared memory",
    "file data": "data of files",
    "file text": "code",
    "vdso": "vdso",
}


def process_memory(facts: ProcessFacts) -> Memory:
    """Return the parts. The heap is split into blocks in use, leaked and free, and the allocator's own memory."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for mapping, kind in classify_mappings(facts.target):
        sizes[kind] += mapping.size
        counts[kind] += 1
    parts = _heap_parts(facts, sizes["heap"] + sizes["arena"])
    for kind, name in _OTHERS.items():
        if sizes[kind]:
            note = f"{counts[kind]} mappings" if counts[kind] > 1 and kind in ("anon", "thread stack") else ""
            if kind == "anon":
                note = "; ".join(filter(None, (note, _largest(facts))))
            parts.append(Part(name, sizes[kind], note))
    return Memory(parts, _TOTAL)


def _largest(facts: ProcessFacts) -> str:
    """Return what the largest anonymous mapping holds; "" where none is large."""
    found = facts.large_mappings
    if not found:
        return ""
    what = found[0].public if facts.private else found[0].phrase
    return f"the largest, {human_size(found[0].mapping.size)}, holds {what}"


def _heap_parts(facts: ProcessFacts, mapped: int) -> list[Part]:
    if not mapped:
        return []
    heap = facts.heap
    rows = facts.sizes
    count = sum(row[1] for row in rows)
    used, free, leaked = (sum(row[0] * row[column] for row in rows) for column in (1, 2, 3))
    tops = sum(one.free_at_top for one in heap.heaps)
    # A damaged heap may claim more than there is.
    parts: list[Part] = []
    left = mapped
    for name, claimed, note in (
        ("heap: blocks in use", used, f"{count:,} block{'' if count == 1 else 's'}"),
        ("heap: leaked", leaked, ""),
        ("heap: free blocks", free, ""),
        ("heap: free at the top", tops, ""),
    ):
        size = max(0, min(claimed, left))
        left -= size
        if size:
            parts.append(Part(name, size, note))
    if left:
        parts.append(Part("heap: the allocator's own", left))
    return parts
