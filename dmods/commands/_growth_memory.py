"""The memory of compared cores by use, and whether `growth` can say what leaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.dataclass import replace
from dmods.graph.growth import STATES, Change, Growth
from dmods.graph.growth_keys import LEAKED_NAME
from dmods.heap.process_heap import ProcessHeap
from dmods.heap.verdict import leak_verdict
from dmods.report import Column, Table, Verdict

MEMORY = (
    Column("use", width=28, title="MEMORY"),
    Column("old_bytes", "bytes", width=12, title="OLD"),
    Column("now_bytes", "bytes", width=12, title="NOW"),
    Column("growth_bytes", "bytes", width=12, title="GROWTH"),
    Column("each_bytes", hidden=True),
)
_UNHELD = "blocks that nothing in the dumps holds"


def growth_verdict(found: Growth, names: Sequence[str], heaps: Sequence[ProcessHeap]) -> Verdict:
    """Return whether the first and the last core show enough to tell what grew and what leaked."""
    for place in (0, -1):
        verdict = leak_verdict(heaps[place])
        if not verdict.possible:
            return Verdict(False, f"{names[place]}: {verdict.reason}")
    if found.growth <= 0 and len(names) - 1 in found.partial:
        return Verdict(False, f"{names[-1]} lacks a part of the heap: it is not known whether the blocks in use grew")
    return Verdict(True)


def memory_table(found: Growth, leaks_known: bool) -> Table:
    """Return the table of the memory by use. Live and leaked blocks are one row where nobody can tell them apart."""
    live, leaked = [each.live for each in found.memory], [each.leaked for each in found.memory]
    in_use = [("live blocks", live), ("leaked blocks", leaked)]
    if not leaks_known:
        in_use = [("live or leaked blocks", [a + b for a, b in zip(live, leaked)])]
    uses = [
        *in_use,
        ("the allocator's own blocks", [each.own for each in found.memory]),
        ("free blocks, caches", [each.free for each in found.memory]),
        ("free at the top of arenas", [each.top for each in found.memory]),
        ("headers, unused", [each.rest for each in found.memory]),
        ("mapped for the heap", [each.mapped for each in found.memory]),
    ]
    rows = [(use, each[0], each[-1], each[-1] - each[0], each) for use, each in uses]
    return Table("memory", MEMORY, rows)


def without_leaks(change: Change) -> Change:
    """Return the change as it is where nobody can tell what has leaked."""
    label: Optional[str] = _UNHELD if change.label in (LEAKED_NAME, STATES[1]) else None
    return replace(change, label=label or change.label, leaked=())
