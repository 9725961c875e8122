"""The types of the objects in Go's heap, without debug information: see engine/core/src/golang."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods._engine import GoObjects, Labels
from dmods.base.cached import cached
from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.base.progress import Progress
from dmods.modules.golang.moduledata import go_modules
from dmods.runtimes.golang.live_stacks import live_stacks
from dmods.runtimes.golang.mheap import GoHeap, Span, find_mheap
from dmods.target import Target

_TEXT = "string"


class Kind(NamedTuple):
    """A kind of object. ``shape`` is as in ``_engine.GoObjects``; ``size`` is that of one value of the type."""

    shape: str
    name: str
    size: int

    @property
    def text(self) -> str:
        """Return the type in words: "main.node", "[]main.node", "map[string]int (table)". "": it is not known."""
        if self.shape in ("one", "map", "channel"):
            return self.name
        if self.shape == "array":
            return f"[]{self.name}"
        if self.shape == "string":
            return _TEXT
        named = {"table": "table", "directory": "list of tables", "function": "closure"}
        return f"{self.name} ({named[self.shape]})" if self.shape in named else ""


@dataclass
class GoTypes:
    """The types of the objects of a heap."""

    heap: GoHeap
    engine: GoObjects

    def rows(self) -> Iterator[tuple[Kind, int, int]]:
        """Yield (kind, objects, bytes). Bytes are those of the size class."""
        for shape, name, size, count, total in self.engine.rows()[0]:
            yield Kind(shape, name, size), count, total

    def rest(self) -> list[tuple[int, bool, int, int]]:
        """Return (bytes of an object, whether it may have pointers, objects, bytes) where the type is not known."""
        return self.engine.rows()[1]

    def labels(self) -> tuple[Labels, list[str]]:
        """Return a label for each object whose type is known, and the types of the labels in words."""
        labels, names = self.engine.labels()
        return labels, [Kind(shape, name, 0).text for shape, name in names]

    def at(self, address: int) -> Optional[tuple[Kind, int, int]]:
        """Return what the object in use at an address is, where its value begins and how many bytes it may have."""
        found = self.engine.at(address)
        return (Kind(*found[:3]), found[3], found[4]) if found is not None else None


@cached
def go_types(target: Target) -> Optional[GoTypes]:
    """Return the types of the objects of the Go heap in the process; None without one."""
    heap = find_mheap(target).heap
    if heap is None:
        return None
    modules = go_modules(target)
    variables = [part for module in modules for part in module.data]
    stacks = [(part.start, part.end) for part in live_stacks(target, heap).parts]
    sections = [module.types for module in modules if module.types is not None]
    pieces = [(piece.start, piece.end) for module in modules for piece in module.module.ranges]
    with Progress("reading objects of Go") as bar:
        engine = GoObjects(
            target.image(),
            [_given(span) for span in heap.spans],
            sections,
            pieces,
            variables,
            stacks,
            lambda done: bar.update(done, 0),
        )
    return GoTypes(heap, engine)


def _given(span: Span) -> tuple[int, int, int, bytes, bool, bool, int]:
    free = (span.free or 0).to_bytes((span.objects + 7) // 8, "little")
    return span.start, span.size, span.objects, free, span.pointers, span.size_class == 0, span.large_type


def type_at(target: Target, address: int) -> str:
    """Return the type of the object of Go that an address is in; "" where it is not known."""
    types = go_types(target)
    found = types.at(address) if types is not None else None
    return found[0].text if found is not None else ""
