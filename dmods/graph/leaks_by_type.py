"""Groups of direct leaks by type or shape, for a heap without allocation records."""

from __future__ import annotations

from collections.abc import Iterable

from dmods.base.dataclass import replace
from dmods.graph.types.block_kinds import TypeName, Types
from dmods.heap.leak_groups import NO_STACK, LeakGroup, group_of_kind
from dmods.heap.process_heap import ProcessHeap
from dmods.records.callers import Callers


def leaks_by_type(heap: ProcessHeap, callers: Callers) -> list[LeakGroup]:
    """Return the direct leaks by size, and by type or shape. For a heap without allocation records."""
    if not heap.leaks().direct_count:
        return []
    types = Types([heap], direct=True)
    nobody = callers.caller(NO_STACK)
    found: list[LeakGroup] = []
    for group in types.kinds.groups(0, heap.index):
        kind = leak_name(types.name(group.kind or 0))
        found.append(group_of_kind(group, nobody, kind))
    return joined_groups(found)


def leak_name(name: TypeName) -> str:
    """Return the type or the shape without the size, which findleaks shows beside it."""
    return name.text if name.is_type else name.text.partition(": ")[2] or name.text


def joined_groups(groups: Iterable[LeakGroup]) -> list[LeakGroup]:
    """Return the groups sorted, with one for all that have the same size and name."""
    found: dict[tuple[object, ...], list[LeakGroup]] = {}
    for group in groups:
        found.setdefault((group.size, group.allocator, group.single, group.kind), []).append(group)
    return sorted((_joined(same) for same in found.values()), key=lambda group: group.order)


def _joined(groups: Iterable[LeakGroup]) -> LeakGroup:
    """Return one group for several of the same size and name."""
    rows = list(groups)
    return replace(
        rows[0],
        count=sum(row.count for row in rows),
        first=min(row.first for row in rows),
        kept_count=sum(row.kept_count for row in rows),
        kept_bytes=sum(row.kept_bytes for row in rows),
        guessed=sum(row.guessed for row in rows),
        sampled=sum(row.sampled for row in rows),
    )
