"""The memory of compared cores by use, and whether `growth` can say what leaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.dataclass import replace
from dmods.graph.growth.comparison import STATES, Change, Growth, lacking
from dmods.graph.growth.keys import LEAKED_NAME
from dmods.heap.heap import ProcessHeap
from dmods.heap.ledger import HEAP, IN_USE, LEAKED, UNJUDGED
from dmods.heap.verdict import leak_verdict
from dmods.report import Column, Schema, Table, Verdict

MEMORY = Schema(
    "memory",
    "a use of memory, in the first core and in the last",
    (
        Column("use", width=28, title="MEMORY"),
        Column("old_bytes", "bytes", width=12, title="OLD"),
        Column("now_bytes", "bytes", width=12, title="NOW"),
        Column("growth_bytes", "bytes", width=12, title="GROWTH"),
        Column("each_bytes", "sizes", hidden=True, about="in each core"),
    ),
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


def partial_notes(found: Growth, names: list[str], heaps: list[ProcessHeap]) -> Iterator[str]:
    """Yield what it means that the heap of a core is not whole."""
    for place in sorted(found.partial):
        means = "memory that it lacks is not counted there, but may be in use"
        if place == 0:
            means = "memory that it lacks and a later core has counts as growth"
        elif place == len(names) - 1:
            means = "memory that it lacks and an older core has counts as gone"
        yield f"{names[place]}: {lacking(heaps[place])}: {means}"
    for name, heap in zip(names, heaps):
        verdict = leak_verdict(heap)
        if not verdict.possible and verdict.reason != lacking(heap):
            yield f"{name}: what is leaked is not known: {verdict.reason}"


def memory_table(found: Growth, leaks_known: bool) -> Table:
    """Return the table of the memory by use, as all commands have it.

    Live and leaked blocks are one row where nobody can tell them apart in one of the cores.
    """
    ledgers = [each.ledger for each in found.memory]
    names = [use.name for use in ledgers[-1].uses]
    names += [use.name for use in ledgers[0].uses if use.name not in names]
    uses = {name: [each.use(name).bytes for each in ledgers] for name in names}
    if not leaks_known:
        leaked = uses.pop(LEAKED, [0] * len(ledgers))
        uses = {UNJUDGED if name == IN_USE else name: sizes for name, sizes in uses.items()}
        uses[UNJUDGED] = [a + b for a, b in zip(uses.get(UNJUDGED, leaked), leaked)]
    of_heap = (*HEAP, UNJUDGED)
    sums = {
        **{name: sizes for name, sizes in uses.items() if name in of_heap},
        "mapped for the heap": [each.heap for each in ledgers],
        **{name: sizes for name, sizes in uses.items() if name not in of_heap},
        "touched, code left out": [each.touched for each in ledgers],
    }
    rows = [(use, each[0], each[-1], each[-1] - each[0], each) for use, each in sums.items()]
    return MEMORY.table(rows)


def without_leaks(change: Change) -> Change:
    """Return the change as it is where nobody can tell what has leaked."""
    label: Optional[str] = _UNHELD if change.label in (LEAKED_NAME, STATES[1]) else None
    return replace(change, label=label or change.label, leaked=())
