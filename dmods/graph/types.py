"""The types of a heap's blocks without debug information: classes by their vtables, all others by shape.

The engine takes the *signature* of every block in one pass and merges signatures into kinds
(engine/core/src/graph/kinds.rs has the rules). This module names the kinds: each vtable and symbol once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Optional

from dmods import _engine
from dmods.base.cached import cached
from dmods.base.progress import Progress
from dmods.graph.amount import NOTHING, Amount
from dmods.graph.places import Modules, places
from dmods.heap.content import class_of, type_info_name
from dmods.heap.leak_groups import NO_STACK, LeakGroup
from dmods.heap.process_heap import ProcessHeap, engine_threads, find_heap
from dmods.heap.texts import printable
from dmods.process.addresses import module_at
from dmods.records.callers import Callers
from dmods.target import Target

SHAPE, OBJECT, EXCEPTION, VARIOUS, MISSING = range(5)
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
_MODULE_BITS = 40
_EXACT = 1024  # sizes up to this are classes of their own (engine/core/src/heap/contents.rs)
_VTABLE_SYMBOL = "_ZTV"  # Itanium C++ ABI, 5.1.4: the symbol of a vtable
_TYPE_INFO_NAME, _NAME_OF = "_ZTS", "typeinfo name for "  # the same with another prefix demangles to a plain name
_PRIMARY = "vtable of "
_LEAST_PREFIX = 3  # characters that a text must have in common
_MANY = 3  # equal words in a row that are written once
_BATCH = 1 << 16


@dataclass(frozen=True)
class TypeName:
    """The name of a kind, and where it comes from.

    `evidence` is "vtable", "vtable symbol", "exception header", "shape" or "none". `confidence` is "proven" where the
    program itself names the type, "likely" where a symbol does, and "none" for a shape: it tells kinds apart and names
    none.
    """

    text: str
    evidence: str
    confidence: str

    @property
    def is_type(self) -> bool:
        """Return whether it is a type, not a shape."""
        return self.confidence != "none"


@dataclass
class TypeRow:
    """The blocks of one type or shape. `id` is short; `walk buf --shape` takes it.

    `least` and `most` are usable sizes. `first` is the block with the lowest address, `first_leaked` of those that
    leaked.
    """

    name: TypeName
    id: str
    kinds: list[int] = field(default_factory=list)
    live: Amount = NOTHING
    leaked: Amount = NOTHING
    own: Amount = NOTHING
    least: int = 0
    most: int = 0
    first: Optional[int] = None
    first_leaked: Optional[int] = None

    @property
    def total(self) -> Amount:
        """Return all blocks in use."""
        return self.live + self.leaked + self.own


class Types:
    """The kinds of the blocks of one or more heaps. A kind has the same number in all of them.

    With `direct`, only direct leaks are looked at: that takes no time where little leaks.
    """

    def __init__(self, heaps: Sequence[ProcessHeap], direct: bool = False) -> None:
        self.heaps = list(heaps)
        self.modules = Modules()
        self._censuses = [_census(heap, self.modules, direct) for heap in heaps]
        self.kinds = _engine.Kinds(self._censuses)
        self._all = self.kinds.all()
        self._names: dict[int, TypeName] = {}
        self._tables: dict[tuple[int, int], Optional[str]] = {}

    def notes(self, index: int = 0) -> list[str]:
        """Return what is uncertain about the types of one heap."""
        missing = self._censuses[index].missing
        return [f"the first bytes of {missing} blocks are not in the dump: their type is not known"] if missing else []

    def __len__(self) -> int:
        return len(self._all)

    def id(self, kind: int) -> str:
        """Return the short name of a kind."""
        return f"s{self._all[kind][0]:08x}"[:6]

    def name(self, kind: int) -> TypeName:
        """Return the name of a kind. It is made once."""
        if kind not in self._names:
            self._names[kind] = self._name(kind)
        return self._names[kind]

    def rows(self, index: int = 0) -> list[TypeRow]:
        """Return the types and shapes of one heap with their sums. ``ProcessHeap.leaks`` decides what has leaked."""
        found: dict[str, TypeRow] = {}
        for kind, sums in enumerate(self.kinds.sums(index, self.heaps[index].index)):
            live, leaked, own, (least, most), first, first_leaked = sums
            if first is None:
                continue
            name = self.name(kind)
            row = found.setdefault(name.text, TypeRow(name, self.id(kind), least=least, most=most))
            row.kinds.append(kind)
            row.live += Amount(*live)
            row.leaked += Amount(*leaked)
            row.own += Amount(*own)
            row.least, row.most = min(row.least, least), max(row.most, most)
            row.first = first if row.first is None else min(first, row.first)
            if first_leaked is not None:
                row.first_leaked = first_leaked if row.first_leaked is None else min(first_leaked, row.first_leaked)
        return sorted(found.values(), key=lambda row: (-row.total.bytes, row.name.text))

    def matching(self, text: str, shape: bool, index: int = 0) -> list[int]:
        """Return the kinds whose type is `text`. With `shape`: whose shape, or whose id, it is.

        A type may lack its namespaces and template arguments.
        """
        names = [(kind, self.name(kind)) for kind in range(len(self))]
        if shape:
            wanted = _words_of(text)
            return [kind for kind, name in names if self.id(kind) == text or _words_of(name.text) == wanted]
        exact = [kind for kind, name in names if name.is_type and name.text == text]
        return exact or [kind for kind, name in names if name.is_type and _short(name.text) == _short(text)]

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
        _id, form, low, high, _count, words, sample, same = self._all[kind]
        module, offset = _split(words[0][1])
        if form in (OBJECT, EXCEPTION):
            return self._object(form, module, offset)
        cache = self._cache(low, high)
        if form in (VARIOUS, MISSING):
            return TypeName(f"{cache}: {'other shapes' if form == VARIOUS else 'not in the dump'}", "none", "none")
        symbol = self._table(module, offset) if words[0][0] == _TABLE else None
        if symbol is not None and symbol.startswith(_PRIMARY):
            return TypeName(plain_class(symbol[len(_PRIMARY) :]), "vtable symbol", "likely")
        size = self.heaps[0].words.size
        shape = self._shape(words[: low // size], sample, same, low > len(words) * size)
        return TypeName(f"{cache}: {shape}", "shape", "none")

    def _object(self, form: int, module: int, offset: int) -> TypeName:
        """Return the name of an object with a vtable, or of an exception, at whose type_info the words point."""
        found = self.modules.address(module, offset)
        if form == EXCEPTION:
            name = type_info_name(*found) if found is not None else None
            text = plain_class(name) if name is not None else f"type_info {self._place(module, offset)}"
            return TypeName(f"exception {text}", "exception header", "proven" if name is not None else "none")
        name = class_of(*found) if found is not None else None
        if name is not None:
            return TypeName(plain_class(name), "vtable", "proven")
        return TypeName(f"object with vtable {self._place(module, offset)}", "vtable", "none")

    def _cache(self, low: int, high: int) -> str:
        first = self.heaps[0]
        allocator = "jemalloc" if first.jemallocs and not first.layout.runs else "malloc"
        return f"{allocator}-{low}" if low == high else f"{allocator}-{low}..{high}"

    def _class(self, module: int, offset: int) -> Optional[str]:
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
            # Itanium C++ ABI, 2.5.2: the offset to top and the type_info stand before the address point.
            return (_PRIMARY if inside == 2 * found[0].arch.word else "secondary vtable of ") + name
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


# -- names of classes -------------------------------------------------------------------------------------------------


def plain_class(name: str) -> str:
    """Return the class as a user would write it: ``make_shared<Foo>`` for libstdc++'s or libc++'s control block."""
    outer, arguments = split_template(name)
    last = outer.rpartition("::")[2]
    if not arguments or not outer.startswith("std::"):
        return name
    if last in ("_Sp_counted_ptr_inplace", "__shared_ptr_emplace"):
        return f"make_shared<{arguments[0]}>"
    if last in ("_Sp_counted_ptr", "_Sp_counted_deleter", "__shared_ptr_pointer"):
        return f"shared_ptr<{arguments[0].rstrip('*').rstrip()}> control block"
    return name


def split_template(name: str) -> tuple[str, list[str]]:
    """Return the template and its arguments: ("std::pair", ["int", "Foo<a, b>"]). No arguments: not a template."""
    start = name.find("<")
    if start < 0 or not name.endswith(">"):
        return name, []
    arguments, depth, current = [], 0, ""
    for character in name[start + 1 : -1]:
        depth += {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}.get(character, 0)
        if depth < 0:
            return name, []  # operator> and the like
        if character == "," and not depth:
            arguments.append(current.strip())
            current = ""
        else:
            current += character
    return name[:start], [*arguments, current.strip()]


def _short(name: str) -> str:
    outer, arguments = split_template(name)
    return outer.rpartition("::")[2] if not arguments or not outer.startswith("make_shared") else name


def _words_of(shape: str) -> str:
    return " ".join(shape.split())


# -- leaks ------------------------------------------------------------------------------------------------------------


def leaks_by_type(heap: ProcessHeap, callers: Callers) -> list[LeakGroup]:
    """Return the direct leaks by size, and by type or shape. For a heap without allocation records."""
    if not heap.leaks().direct_count:
        return []
    types = Types([heap], direct=True)
    nobody = callers.caller(NO_STACK)
    found: dict[tuple[object, ...], list[LeakGroup]] = {}
    for size, chunks, single, count, first, kept_count, kept_bytes, kind in types.kinds.groups(0, heap.index):
        allocator = "glibc malloc" if chunks else "jemalloc"
        name = types.name(kind)
        shown = name.text if name.is_type else name.text.partition(": ")[2] or name.text
        key = (size, allocator, single, shown)
        row = (size, allocator, single, count, first, kept_count, kept_bytes, None, NO_STACK, nobody)
        found.setdefault(key, []).append(LeakGroup(*row, kind=shown))
    groups = (_joined(same) for same in found.values())
    return sorted(groups, key=lambda group: group.order)


def _joined(groups: Iterable[LeakGroup]) -> LeakGroup:
    """Return one group for several of the same size and name."""
    rows = list(groups)
    return replace(
        rows[0],
        count=sum(row.count for row in rows),
        first=min(row.first for row in rows),
        kept_count=sum(row.kept_count for row in rows),
        kept_bytes=sum(row.kept_bytes for row in rows),
    )
