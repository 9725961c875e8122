"""The types of a heap's blocks without debug information: classes by their vtables, all others by shape.

The engine takes the *signature* of every block in one pass and merges signatures into kinds
(engine/core/src/graph/kinds.rs has the rules). `kind_names` names the kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Optional

from dmods import _engine
from dmods.base.cached import cached
from dmods.base.class_names import named_alike
from dmods.base.dataclass import replace
from dmods.base.progress import Progress
from dmods.graph.types.kind_names import NAMED, KindNames
from dmods.graph.types.outside_heap import Modules, places
from dmods.graph.types.proven_sizes import proven_counts
from dmods.graph.types.runtime_names import go_names, python_types
from dmods.graph.types.type_name import TypeName
from dmods.graph.types.type_row import TypeRow, kind_id, named_so, short_length
from dmods.graph.types.types_from_marks import Key, Names, labelled
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.index import engine_threads
from dmods.records.callers import Callers
from dmods.records.model import Stack
from dmods.target import Target

_SAY_SO = ("coroutine",)  # evidence that stands in the block itself
_EXACT = 1024  # sizes up to this are classes of their own (engine/core/src/contents/signature.rs)
_BATCH = 1 << 16


class Types:
    """The kinds of the blocks of one or more heaps. A kind has the same number in all of them.

    With `direct`, only direct leaks are looked at: that takes no time where little leaks. With `shapes`, all blocks
    have shapes, also those whose type is known.
    """

    def __init__(self, heaps: Sequence[ProcessHeap], direct: bool = False, shapes: bool = False) -> None:
        self.heaps = list(heaps)
        self.modules = Modules()
        self._names = KindNames(self.heaps, self.modules, shapes)
        self._notes: list[list[str]] = [[] for _heap in heaps]
        self._censuses = [_census(heap, self.modules, direct) for heap in heaps]
        self._count()
        if not shapes:
            self._take_labels(direct)

    def _take_labels(self, direct: bool) -> None:
        """Give names to the blocks whose holders, or whose callers, say what they are."""
        plain = self.kinds
        for index, heap in enumerate(self.heaps):
            if not direct:
                self._rename(index, *go_names(heap))
                self._rename(index, *python_types(heap))
            found = labelled(heap, plain, index, direct)
            if found is None:
                continue
            labels, names, whole = found
            # An object of the type that its holder names keeps what it says itself.
            self._rename(index, labels, names, {key for key in whole if self.name(key[3]).text != names[key].text})
            if labels.conflicts:
                self._notes[index].append(
                    f"{labels.conflicts} blocks have holders of different types: none is believed"
                )
            if labels.cut:
                self._notes[index].append("too many blocks have holders that tell their type: the others have a shape")
        if not self._names.given:
            return
        self._count()
        if direct or not any(heap.records for heap in self.heaps):
            return
        known = [self._known(kind) for kind in range(len(self))]
        assumed = [TypeName(name.text, "records", "assumed") for name in self._names.given]
        for index, heap in enumerate(self.heaps):
            labels = self.kinds.by_stack(plain, index, heap.marks.engine, _callers(heap), known)
            names = {key: assumed[key[0]] for key, _count in labels.sizes()}
            self._rename(index, labels, names)
        self._count()

    def _rename(self, index: int, labels: _engine.Labels, names: Names, whole: Set[Key] = frozenset()) -> None:
        """Give blocks their names; also those that begin with an object, where the key of the label is in `whole`."""
        if names:
            given = self._names.given
            numbers = {key: given.setdefault(name, len(given)) for key, name in names.items()}
            self._censuses[index] = self._censuses[index].named(
                self.heaps[index].marks.engine, labels, numbers, set(whole)
            )

    def _count(self) -> None:
        self.kinds = _engine.Kinds(self._censuses)
        self._all = self.kinds.all()
        self._names.take(self.kinds, self._all)
        self._id_length = 0  # characters that tell the kinds apart; 0: not yet known

    def _known(self, kind: int) -> int:
        """Return the number of the name that a kind was given, -1 for a shape, -2 for a type that blocks show."""
        row, name = self._all[kind], self.name(kind)
        if row.form == NAMED and name.evidence not in _SAY_SO:
            return row.words[0][1]
        return -2 if name.is_type else -1

    def notes(self, index: int = 0) -> list[str]:
        """Return what is uncertain about the types of one heap."""
        missing, notes = self._censuses[index].missing, list(self._notes[index])
        if missing:
            notes.append(f"the first bytes of {missing} blocks are not in the dump: their type is not known")
        return notes

    def blocks(self, index: int = 0) -> int:
        """Return how many blocks in use one heap has."""
        return len(self._censuses[index])

    def __len__(self) -> int:
        return len(self._all)

    def id(self, kind: int) -> str:
        """Return the short name of a kind."""
        if not self._id_length:
            self._id_length = short_length(kind_id(row.id) for row in self._all)
        return kind_id(self._all[kind].id)[: self._id_length]

    def name(self, kind: int) -> TypeName:
        """Return the name of a kind. It is made once."""
        return self._names.name(kind)

    def type(self, kind: int) -> Optional[TypeName]:
        """Return the name of a kind, or None for one that has only a shape: that is not put into words."""
        return self._names.type(kind)

    def rows(self, index: int = 0) -> list[TypeRow]:
        """Return the types and shapes of one heap with their sums. ``Marks`` decides what has leaked."""
        found: dict[tuple[str, str], TypeRow] = {}
        asked = proven_counts(self, index)
        for kind, sums in enumerate(self.kinds.sums(index, self.heaps[index].marks.engine)):
            if sums.first is None:
                continue
            name, key = self.name(kind), self.id(kind)
            row = found.get(name.row)
            if row is None:
                row = found[name.row] = TypeRow(name, key, least=sums.least, most=sums.most)
            row.name = _joined_names(row.name, name)
            row.kinds.append(kind)
            row.add(sums, name.confidence, asked[kind])
        return sorted(found.values(), key=lambda row: (-row.total.bytes, row.name.text, row.name.evidence))

    def vtable(self, kind: int) -> Optional[tuple[Target, int]]:
        """Return (a core, the address of the vtable in it) for a kind of objects, or None."""
        return self._names.vtable(kind)

    def matching(self, text: str, shape: bool, index: int = 0) -> list[int]:
        """Return the kinds whose type is `text`. With `shape`: whose shape, or whose id, it is.

        A type may lack its namespaces and template arguments.
        """
        names = [(kind, self.name(kind)) for kind in range(len(self))]
        if shape:
            wanted = _words_of(text)
            ids = [kind_id(row.id) for row in self._all]
            chosen = named_so(text, ids)
            return [kind for kind, name in names if ids[kind] in chosen or _words_of(name.text) == wanted]
        chosen = set(named_alike(text, {name.text for _kind, name in names if name.is_type}))
        return [kind for kind, name in names if name.is_type and name.text in chosen]

    def addresses(self, kinds: Sequence[int], states: Sequence[int], index: int = 0) -> Iterator[int]:
        """Yield the addresses of the blocks of these kinds in one of the states."""
        start: Optional[tuple[int, int]] = (0, 0)
        while start is not None:
            batch, start = self.kinds.addresses(
                index, self.heaps[index].marks.engine, list(kinds), list(states), start, _BATCH
            )
            yield from batch


def _callers(heap: ProcessHeap) -> list[tuple[_engine.Records, dict[int, int]]]:
    """Return the recorders, and for each of their stacks the address of its caller as a number."""
    callers = Callers(heap.target)
    numbers: dict[int, int] = {}
    found = []
    for recording in heap.records.recordings:
        of_stack: dict[int, int] = {}
        for key in {row.stack for row in recording.rows.users()}:
            frame = callers.caller_frame(Stack(*recording.rows.stack(key)))
            if frame is not None:
                of_stack[key] = numbers.setdefault(frame[0], len(numbers))
        found.append((recording.rows, of_stack))
    return found


def _joined_names(one: TypeName, other: TypeName) -> TypeName:
    """Return the name with the evidence of both."""
    if one.evidence == other.evidence and "," not in one.evidence:
        return one
    evidence = sorted({*one.evidence.split(", "), *other.evidence.split(", ")})
    return replace(one, evidence=", ".join(evidence))


def _census(heap: ProcessHeap, modules: Modules, direct: bool) -> _engine.Census:
    with Progress("looking at the blocks") as bar:
        outside = places(heap.target, modules)
        return _engine.Census(heap.marks.engine, outside, direct, engine_threads(), lambda done: bar.update(done, 0))


@cached
def find_types(target: Target) -> Types:
    """Return the types of the target's blocks, computed once for each state of the target."""
    return Types([find_heap(target)])


def size_class(low: int) -> tuple[int, int]:
    """Return the least and the largest size of the size class that begins at `low`, as the engine has them."""
    if low <= _EXACT:
        return low, low
    return low, low + (1 << low.bit_length() - 3) - 1


def _words_of(shape: str) -> str:
    return " ".join(shape.split())
