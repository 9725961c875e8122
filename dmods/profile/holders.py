"""The chains of holders of a heap: who alone keeps the blocks in use alive, up to the named roots.

A heap may have hundreds of thousands of chains. A profile needs all of them; a picture only the widest.
"""

from __future__ import annotations

from array import array
from functools import cached_property

from dmods import _engine
from dmods.base.progress import Progress
from dmods.errors import UserError
from dmods.graph.owners.heap_owners import Line
from dmods.heap.no_heap import no_heap
from dmods.profile.from_records import Details
from dmods.profile.layout import Node
from dmods.target import Target

NAME = "the pointers of the heap"
FULL = "there are too many chains of holders: some blocks are counted at their holders"
_NONE = (1 << 32) - 1
_NO_TYPE = "block"


class Holders:
    """The tree of holders. Raises UserError where dmods cannot walk the heap.

    ``nodes`` are (parent's number plus 1, or 0; number of a kind, or of a set of roots without a parent). A holder
    comes before what it holds. ``held`` are (node, bytes of each block, blocks, bytes of all). ``notes`` say what is
    uncertain.
    """

    def __init__(self, target: Target) -> None:
        self.details = Details.of(target)
        if not self.details.heap.found:
            raise UserError(no_heap(target), "a profile needs allocation records, or a heap that dmods can walk")
        with Progress("following the holders") as bar:
            self.nodes, self.held, full = _engine.reference_stacks(
                self.details.owners.engine, self.details.types.kinds, lambda done: bar.update(done, 0)
            )
        self._lines: dict[int, Line] = {}
        notes = [*([FULL] if full else []), *self.details.owners.notes]
        self.notes = [*notes, *(note for note in target.notes if note not in notes)]

    def line(self, roots: int) -> Line:
        """Return who a set of roots is."""
        if roots not in self._lines:
            self._lines[roots] = self.details.owners.line_of(roots)
        return self._lines[roots]

    def name(self, number: int) -> str:
        """Return the name of a node."""
        parent, what = self.nodes[number]
        if not parent:
            return self.line(what).name
        return self.kind(what)

    def kind(self, kind: int) -> str:
        """Return the name of a kind of blocks."""
        return self.details.types.name(kind).text if kind != _NONE else _NO_TYPE

    @cached_property
    def sums(self) -> list[int]:
        """Return the bytes of each node, with those of all nodes below it."""
        sums = [0] * len(self.nodes)
        for number, _size, _count, total in self.held:
            sums[number] += total
        for number in range(len(sums) - 1, -1, -1):
            parent = self.nodes[number][0]
            if parent:
                sums[parent - 1] += sums[number]
        return sums

    @cached_property
    def _children(self) -> tuple[array[int], array[int]]:
        """Return the first child of each node plus 1, and the next child of its parent plus 1; 0: no such node.

        The last place of the first list is that of all roots.
        """
        first, following = array("L", bytes(8 * (len(self.nodes) + 1))), array("L", bytes(8 * len(self.nodes)))
        for number in range(len(self.nodes) - 1, -1, -1):
            above = self.nodes[number][0] - 1  # -1 is the last place: that of all roots
            following[number], first[above] = first[above], number + 1
        return first, following

    def split(self, members: array[int], _depth: int) -> list[tuple[Node, array[int]]]:
        """Return what these nodes hold, by name. The node that holds all roots has the number ``len(nodes)``."""
        first, following = self._children
        sums = self.sums
        found: dict[str, tuple[Node, array[int]]] = {}
        for member in members:
            child = first[member]
            while child:
                number = child - 1
                name = self.name(number)
                if name not in found:
                    found[name] = (Node(name), array("L"))
                node, inside = found[name]
                node.new += sums[number]
                node.width = node.new
                inside.append(number)
                child = following[number]
        return list(found.values())

    @cached_property
    def total(self) -> int:
        """Return the bytes of all blocks."""
        return sum(row[3] for row in self.held)
