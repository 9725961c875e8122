"""The types of a heap's blocks without debug information: classes by their vtables, all others by shape.

The engine takes the *signature* of every block in one pass and merges signatures into kinds
(engine/core/src/graph/kinds.rs has the rules). This module names the kinds: each vtable and symbol once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import groupby
from typing import TYPE_CHECKING, Optional

from dmods import _engine
from dmods.base.cached import cached
from dmods.base.class_names import named_alike, plain_class, split_template
from dmods.base.dataclass import dataclass, field, replace
from dmods.base.progress import Progress
from dmods.base.words import Words
from dmods.graph.types.type_row import NOTHING, Amount
from dmods.graph.types.types_from_marks import Key, Names, labelled
from dmods.graph.types.runtime_names import go_names
from dmods.graph.types.outside_heap import Modules, places
from dmods.graph.types.proven_sizes import proven_counts
from dmods.graph.types.runtime_names import python_types
from dmods.graph.types.type_name import kind_id, named_so, short_length
from dmods.graph.types.type_name import CONFIDENCES, TypeName, type_name
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.process_heap import ProcessHeap, engine_threads, find_heap
from dmods.heap.texts import printable
from dmods.process.addresses import module_at
from dmods.records.callers import Callers
from dmods.records.model import Stack
from dmods.target import Target

if TYPE_CHECKING:
    from dmods.graph.types.vtable_blocks import VtableBlocks

__all__ = ["TypeName", "TypeRow", "Types", "find_types", "plain_class", "size_class", "split_template"]

SHAPE, OBJECT, EXCEPTION, VARIOUS, MISSING, NAMED = range(6)
_ZERO, _LEFT, _SMALL, _NUMBER, _TEXT, _CODE, _TABLE, _VTABLE, _READ_ONLY, _DATA, _HEAP, _ELSEWHERE, _SHORT = range(13)
_PLAIN = {
    _ZERO: "0",
    _LEFT: "0",
    _SMALL: "small",
    _NUMBER: "number",
    _TEXT: "text",
    _SHORT: "text",
    _CODE: "code",
    _READ_ONLY: "rodata",
    _DATA: "data",
    _ELSEWHERE: "memory",
}
_TO_ANY, _TO_TEXT = 0, 1  # the details of a pointer to a block of any size, and to one that is mostly text
_TEXTS = (_TEXT, _SHORT)
_ALWAYS = (_ZERO, _NUMBER, _LEFT)  # what has no other name
_MODULE_BITS = 40
_EXACT = 1024  # sizes up to this are classes of their own (engine/core/src/contents/signature.rs)
_VTABLE_SYMBOL = "_ZTV"  # Itanium C++ ABI, 5.1.4: the symbol of a vtable
_TYPE_INFO_NAME, _NAME_OF = "_ZTS", "typeinfo name for "  # the same with another prefix demangles to a plain name
_PRIMARY = "vtable of "
_LEAST_PREFIX = 3  # characters that a text must have in common
_SAY_SO = ("coroutine",)  # evidence that stands in the block itself
_MANY = 3  # equal words in a row that are written once
_BATCH = 1 << 16
_IN_USE = (LIVE, DIRECT, INDIRECT)
_EXAMPLES = 3  # blocks of a kind that are compared


@dataclass
class TypeRow:
    """The blocks of one type or shape. `id` is short; `walk buf --shape` takes it.

    `least` and `most` are usable sizes. `first` is the block with the lowest address, `first_leaked` of those that
    leaked. The confidence of `name` is the weakest of all its blocks; `sure` has the live and the leaked blocks of each
    confidence.
    """

    name: TypeName
    id: str
    kinds: list[int] = field(default_factory=list)
    types: list[tuple[int, bool]] = field(default_factory=list)  # of debug information; and whether arrays
    live: Amount = NOTHING
    leaked: Amount = NOTHING
    own: Amount = NOTHING
    least: int = 0
    most: int = 0
    first: Optional[int] = None
    first_leaked: Optional[int] = None
    sure: dict[str, tuple[int, int]] = field(default_factory=dict)
    pooled: bool = False  # objects in blocks that hold many: they are no blocks of their own

    @property
    def total(self) -> Amount:
        """Return all blocks in use by the program."""
        return self.live + self.leaked

    def add(self, sums: _engine.SumRow, confidence: str, asked: tuple[int, int] = (0, 0)) -> None:
        """Add the blocks of a kind or a type that is there. Records prove the type of ``asked``: (live, leaked)."""
        for sure, more in ((confidence, (sums.live[0] - asked[0], sums.leaked[0] - asked[1])), ("proven", asked)):
            if any(more) or (sure == confidence and not any(asked)):
                live, leaked = self.sure.get(sure, (0, 0))
                self.sure[sure] = live + more[0], leaked + more[1]
        self.name = replace(self.name, confidence=max(self.sure, key=CONFIDENCES.index))
        self.live += Amount(*sums.live)
        if sums.leaked[0]:
            self.leaked += Amount(*sums.leaked)
        if sums.own[0]:
            self.own += Amount(*sums.own)
        self.least, self.most = min(self.least, sums.least), max(self.most, sums.most)
        self.first = _lower(self.first, sums.first)
        self.first_leaked = _lower(self.first_leaked, sums.first_leaked)


def _lower(a: Optional[int], b: Optional[int]) -> Optional[int]:
    return min((each for each in (a, b) if each is not None), default=None)


class Types:
    """The kinds of the blocks of one or more heaps. A kind has the same number in all of them.

    With `direct`, only direct leaks are looked at: that takes no time where little leaks. With `shapes`, all blocks
    have shapes, also those whose type is known.
    """

    def __init__(self, heaps: Sequence[ProcessHeap], direct: bool = False, shapes: bool = False) -> None:
        self.heaps = list(heaps)
        self._shapes_only = shapes
        self.modules = Modules()
        self._names: dict[int, TypeName] = {}
        self._tables: dict[tuple[int, int], Optional[str]] = {}
        self._given: dict[TypeName, int] = {}
        self._with_vtables: Optional[VtableBlocks] = None
        self._allocator = ""  # whose blocks they are, in the names of shapes; "": not yet known
        self._id_length = 0  # characters that tell the kinds apart; 0: not yet known
        self._notes: list[list[str]] = [[] for _heap in heaps]
        self._censuses = [_census(heap, self.modules, direct) for heap in heaps]
        self.kinds = _engine.Kinds(self._censuses)
        self._all = self.kinds.all()
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
        if not self._given:
            return
        self._count()
        if direct or not any(heap.records for heap in self.heaps):
            return
        known = [self._known(kind) for kind in range(len(self))]
        assumed = [TypeName(name.text, "records", "assumed") for name in self._given]
        for index, heap in enumerate(self.heaps):
            labels = self.kinds.by_stack(plain, index, heap.index, _callers(heap), known)
            names = {key: assumed[key[0]] for key, _count in labels.sizes()}
            self._rename(index, labels, names)
        self._count()

    def _rename(self, index: int, labels: _engine.Labels, names: Names, whole: Set[Key] = frozenset()) -> None:
        """Give blocks their names; also those that begin with an object, where the key of the label is in `whole`."""
        if names:
            numbers = {key: self._given.setdefault(name, len(self._given)) for key, name in names.items()}
            self._censuses[index] = self._censuses[index].named(self.heaps[index].index, labels, numbers, set(whole))

    def _count(self) -> None:
        self.kinds = _engine.Kinds(self._censuses)
        self._all = self.kinds.all()
        self._names.clear()
        self._with_vtables = None
        self._id_length = 0

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
        if kind not in self._names:
            self._names[kind] = self._name(kind)
        return self._names[kind]

    def type(self, kind: int) -> Optional[TypeName]:
        """Return the name of a kind, or None for one that has only a shape: that is not put into words."""
        known = self._names[kind] if kind in self._names else self._told_name(kind)
        return known if known is not None and known.is_type else None

    def rows(self, index: int = 0) -> list[TypeRow]:
        """Return the types and shapes of one heap with their sums. ``ProcessHeap.leaks`` decides what has leaked."""
        found: dict[tuple[str, str], TypeRow] = {}
        asked = proven_counts(self, index)
        for kind, sums in enumerate(self.kinds.sums(index, self.heaps[index].index)):
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
        row = self._all[kind]
        return self.modules.address(*_split(row.words[0][1])) if row.form == OBJECT else None

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
                index, self.heaps[index].index, list(kinds), list(states), start, _BATCH
            )
            yield from batch

    # -- names ----------------------------------------------------------------------------------------------------

    def _name(self, kind: int) -> TypeName:
        known = self._told_name(kind)
        if known is not None:
            return known
        row = self._all[kind]
        cache = self._cache(row.least, row.most)
        if row.form in (VARIOUS, MISSING):
            return TypeName(f"{cache}: {'other shapes' if row.form == VARIOUS else 'not in the dump'}", "none", "none")
        size = self.heaps[0].words.size
        shape = self._shape(row.words[: row.least // size], row.sample, row.same, row.least > len(row.words) * size)
        return TypeName(f"{cache}: {shape}", "shape", "none")

    def _told_name(self, kind: int) -> Optional[TypeName]:
        """Return the name of a kind that has more than a shape: one that it was given, or that its blocks tell."""
        row = self._all[kind]
        if row.form in (VARIOUS, MISSING):
            return None
        tag, detail = row.words[0]
        if row.form == NAMED:
            return list(self._given)[detail]
        module, offset = _split(detail)
        if row.form in (OBJECT, EXCEPTION):
            return self._object(kind, module, offset)
        symbol = self._table(module, offset) if tag == _TABLE else None
        if symbol is None or not symbol.startswith(_PRIMARY) or self._shapes_only:
            return None
        return self._of_class(kind, module, offset, symbol[len(_PRIMARY) :], "vtable symbol")

    def _object(self, kind: int, module: int, offset: int) -> TypeName:
        """Return the name of an object with a vtable, or of an exception, at whose type_info the words point."""
        from dmods.heap.content import class_of, type_info_name

        row = self._all[kind]
        found = self.modules.address(module, offset)
        if row.form == EXCEPTION:
            name = type_info_name(*found) if found is not None else None
            if name is None:
                return TypeName(f"exception type_info {self._place(module, offset)}", "exception header", "none")
            return type_name(name, "exception header", "proven", "exception ")
        name = class_of(*found) if found is not None else None
        if found is None or name is None:
            return TypeName(f"object with vtable {self._place(module, offset)}", "vtable", "none")
        known = None
        if not self._shapes_only:
            known = self._of_class(kind, module, offset, name, "vtable")
        return known or TypeName(
            f"{self._cache(row.least, row.most)}: begins with {plain_class(name)}", "vtable", "none"
        )

    def _first_blocks(self, index: int, kinds: list[int]) -> list[list[int]]:
        return self.kinds.examples(index, self.heaps[index].index, kinds, list(_IN_USE), _EXAMPLES)

    def _of_class(self, kind: int, module: int, offset: int, name: str, evidence: str) -> Optional[TypeName]:
        """Return the type of the blocks of a kind, which begin with a vtable pointer of a class, or None."""
        from dmods.graph.types.vtable_blocks import VtableBlocks  # heaps of C have no vtables
        from dmods.graph.types.class_size import object_name

        found = self.modules.address(module, offset)
        if found is None:
            return None
        if self._with_vtables is None:
            self._with_vtables = VtableBlocks(self.heaps, self._all, _has_vtable, self._first_blocks)
        return object_name(*found, name, self._with_vtables.alike(kind, self._all[kind]), evidence)

    def _cache(self, low: int, high: int) -> str:
        if not self._allocator:
            names = {one.allocator for heap in self.heaps for one in heap.heaps if one.is_used}
            self._allocator = names.pop().split()[-1] if len(names) == 1 else "malloc"
        return f"{self._allocator}-{low}" if low == high else f"{self._allocator}-{low}..{high}"

    def _class(self, module: int, offset: int) -> Optional[str]:
        from dmods.heap.content import class_of

        found = self.modules.address(module, offset)
        return class_of(*found) if found is not None else None

    def _place(self, module: int, offset: int) -> str:
        found = self.modules.address(module, offset)
        if found is None:
            return f"{offset:#x}"
        owner = module_at(*found)
        return f"{owner.name}`{offset:#x}" if owner is not None else f"{offset:#x}"

    def _table(self, module: int, offset: int) -> Optional[str]:
        """Return what a table of functions is: "vtable of Foo", "file_ops"; None where it has no symbol."""
        key = (module, offset)
        if key not in self._tables:
            self._tables[key] = self._find_table(module, offset)
        return self._tables[key]

    def _find_table(self, module: int, offset: int) -> Optional[str]:
        found = self.modules.address(module, offset)
        symbol = found[0].symbol_at(found[1]) if found is not None else None
        if found is None or symbol is None:
            return None
        inside = found[1] - symbol.address
        if symbol.name.startswith(_VTABLE_SYMBOL):
            text = _engine.demangle(_TYPE_INFO_NAME + symbol.name[len(_VTABLE_SYMBOL) :])
            name = text[len(_NAME_OF) :] if text.startswith(_NAME_OF) else symbol.name
            # Itanium C++ ABI, 2.5.2: before the address point stand the type_info and the offset to top: 0 where
            # the object begins; before them the offsets of virtual bases.
            word = found[0].arch.word
            top = Words(found[0].image(), word).at(found[1] - 2 * word) if inside >= 2 * word else None
            return (_PRIMARY if top == 0 else "secondary vtable of ") + name
        name = _engine.demangle(symbol.name)
        return f"{name}+{inside:#x}" if inside else name

    def _shape(self, words: Sequence[tuple[int, int]], sample: Sequence[int], same: Sequence[int], more: bool) -> str:
        said = [self._word(kind, detail, sample[i], same[i]) for i, (kind, detail) in enumerate(words)]
        # A text reaches over several words.
        joined = [each for i, each in enumerate(said) if not (i and words[i][0] == _TEXT and words[i - 1][0] in _TEXTS)]
        while joined and joined[-1] == "0":
            joined.pop()
        if not joined:
            return "zeros"
        out: list[str] = []
        for each, group in groupby(joined):
            count = len(list(group))
            out.extend([f"{each} x{count}"] if count >= _MANY else [each] * count)
        return ", ".join(out) + (", .." if more else "")

    def _word(self, kind: int, detail: int, sample: int, same: int) -> str:
        if not detail and kind in _ALWAYS:
            return _PLAIN[kind]
        size = self.heaps[0].words.size
        if kind == _HEAP:
            return {_TO_ANY: "heap", _TO_TEXT: "heap text"}.get(detail, f"heap-{detail}")
        if kind == _SMALL and same >= size:
            return str(sample)
        if kind in _TEXTS:
            return _text(sample.to_bytes(8, "little")[:size], same)
        if kind in (_TABLE, _VTABLE, _CODE) and detail:
            return self._named(kind, *_split(detail))
        return _PLAIN[kind]

    def _named(self, kind: int, module: int, offset: int) -> str:
        """Return the name of a function, or of a table of functions."""
        if kind == _TABLE:
            return self._table(module, offset) or f"table {self._place(module, offset)}"
        if kind == _VTABLE:
            name = self._class(module, offset)
            return f"vtable of {plain_class(name)}" if name is not None else f"vtable {self._place(module, offset)}"
        found = self.modules.address(module, offset)
        symbol = found[0].symbol_at(found[1]) if found is not None else None
        return f"code {_engine.demangle(symbol.name)}" if symbol is not None else "code"


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


def _has_vtable(row: _engine.KindRow) -> bool:
    return row.form == OBJECT or (row.form == SHAPE and row.words[0][0] == _TABLE)


def _joined_names(one: TypeName, other: TypeName) -> TypeName:
    """Return the name with the evidence of both."""
    if one.evidence == other.evidence and "," not in one.evidence:
        return one
    evidence = sorted({*one.evidence.split(", "), *other.evidence.split(", ")})
    return replace(one, evidence=", ".join(evidence))


def _split(detail: int) -> tuple[int, int]:
    """Return the number of a module and the offset in it."""
    return detail >> _MODULE_BITS, detail & ((1 << _MODULE_BITS) - 1)


def _text(word: bytes, same: int) -> str:
    """Return "text", with what all blocks have in common at its beginning."""
    common = word[:same].split(b"\0")[0]
    shown = printable(common) if len(common) >= _LEAST_PREFIX else None
    if shown is None:
        return "text"
    return f"text '{shown}'" if same >= len(word) > len(common) else f"text '{shown}..'"


def _census(heap: ProcessHeap, modules: Modules, direct: bool) -> _engine.Census:
    heap.leaks()  # the census counts by state
    with Progress("looking at the blocks") as bar:
        outside = places(heap.target, modules)
        return _engine.Census(heap.index, outside, direct, engine_threads(), lambda done: bar.update(done, 0))


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
