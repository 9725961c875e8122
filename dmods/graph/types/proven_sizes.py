"""Objects that their records prove: the program asked for just the size of the class that the vtable names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional, Protocol

from dmods import _engine
from dmods.graph.types.type_name import TypeName
from dmods.heap.heap import ProcessHeap
from dmods.target import Target


class Kinds(Protocol):
    """Kinds of blocks, as ``Types`` in block_kinds.py has them."""

    @property
    def heaps(self) -> Sequence[ProcessHeap]:
        """Return the heaps that have the blocks."""

    @property
    def kinds(self) -> _engine.Kinds:
        """Return the engine's kinds."""

    def __len__(self) -> int: ...

    def name(self, kind: int) -> TypeName:
        """Return the name of a kind."""

    def vtable(self, kind: int) -> Optional[tuple[Target, int]]:
        """Return (a core, the address of the vtable in it) for a kind of objects, or None."""


def proven_counts(types: Kinds, index: int = 0, graph: Optional[_engine.TypeGraph] = None) -> list[tuple[int, int]]:
    """Return for each kind how many (live, leaked) blocks are objects because records have just their size.

    With ``graph``: of the blocks that it does not count by a type of debug information.
    """
    heap = types.heaps[index]
    records = [recording.rows for recording in heap.records.recordings]
    sizes = [object_size(types, kind) or 0 for kind in range(len(types))] if records else []
    if not any(sizes):
        return [(0, 0)] * len(types)
    if graph is not None:
        return graph.asked(types.kinds, index, heap.marks.engine, records, sizes)
    return types.kinds.asked(index, heap.marks.engine, records, sizes)


def object_size(types: Kinds, kind: int) -> Optional[int]:
    """Return the bytes of one object of a kind that a vtable names and does not prove, or None."""
    from dmods.graph.types.class_size import class_size

    found = types.vtable(kind)
    if found is None or types.name(kind).confidence != "likely" or types.name(kind).text.endswith("[]"):
        return None
    return class_size(*found)
