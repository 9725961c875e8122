"""Names for the kinds of blocks: each vtable and symbol is named once.

A block whose type nobody says has a shape: what each of its words is, as the engine classified it
(engine/core/src/contents/signature.rs).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Optional

from dmods import _engine
from dmods.base.class_names import plain_class
from dmods.base.words import Words
from dmods.graph.types.outside_heap import Modules
from dmods.graph.types.type_name import TypeName, type_name
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.heap import ProcessHeap
from dmods.heap.texts import printable
from dmods.process.addresses import module_at
from dmods.target import Target

if TYPE_CHECKING:
    from dmods.graph.types.vtable_blocks import VtableBlocks

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
_VTABLE_SYMBOL = "_ZTV"  # Itanium C++ ABI, 5.1.4: the symbol of a vtable
_TYPE_INFO_NAME, _NAME_OF = "_ZTS", "typeinfo name for "  # the same with another prefix demangles to a plain name
_PRIMARY = "vtable of "
_LEAST_PREFIX = 3  # characters that a text must have in common
_MANY = 3  # equal words in a row that are written once
_IN_USE = (LIVE, DIRECT, INDIRECT)
_EXAMPLES = 3  # blocks of a kind that are compared


class KindNames:
    """The names of the kinds of blocks of one or more heaps. Each is made once.

    ``given`` has the names that holders, callers and runtimes gave to blocks, in the order of their numbers. With
    ``shapes``, all kinds have shapes, also those whose type is known.
    """

    def __init__(self, heaps: Sequence[ProcessHeap], modules: Modules, shapes: bool) -> None:
        self.given: dict[TypeName, int] = {}
        self._heaps = heaps
        self._modules = modules
        self._shapes_only = shapes
        self._names: dict[int, TypeName] = {}
        self._tables: dict[tuple[int, int], Optional[str]] = {}
        self._with_vtables: Optional[VtableBlocks] = None
        self._allocator = ""  # whose blocks they are, in the names of shapes; "": not yet known

    def take(self, kinds: _engine.Kinds, rows: Sequence[_engine.KindRow]) -> None:
        """Take the kinds to name, and their rows. Names of kinds before them are forgotten."""
        self._kinds, self._rows = kinds, rows
        self._names.clear()
        self._with_vtables = None

    def name(self, kind: int) -> TypeName:
        """Return the name of a kind. It is made once."""
        if kind not in self._names:
            self._names[kind] = self._name(kind)
        return self._names[kind]

    def type(self, kind: int) -> Optional[TypeName]:
        """Return the name of a kind, or None for one that has only a shape: that is not put into words."""
        known = self._names[kind] if kind in self._names else self._told_name(kind)
        return known if known is not None and known.is_type else None

    def vtable(self, kind: int) -> Optional[tuple[Target, int]]:
        """Return (a core, the address of the vtable in it) for a kind of objects, or None."""
        row = self._rows[kind]
        return self._modules.address(*_split(row.words[0][1])) if row.form == OBJECT else None

    def _name(self, kind: int) -> TypeName:
        known = self._told_name(kind)
        if known is not None:
            return known
        row = self._rows[kind]
        cache = self._cache(row.least, row.most)
        if row.form in (VARIOUS, MISSING):
            return TypeName(f"{cache}: {'other shapes' if row.form == VARIOUS else 'not in the dump'}", "none", "none")
        size = self._heaps[0].words.size
        shape = self._shape(row.words[: row.least // size], row.sample, row.same, row.least > len(row.words) * size)
        return TypeName(f"{cache}: {shape}", "shape", "none")

    def _told_name(self, kind: int) -> Optional[TypeName]:
        """Return the name of a kind that has more than a shape: one that it was given, or that its blocks tell."""
        row = self._rows[kind]
        if row.form in (VARIOUS, MISSING):
            return None
        tag, detail = row.words[0]
        if row.form == NAMED:
            return list(self.given)[detail]
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

        row = self._rows[kind]
        found = self._modules.address(module, offset)
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
        return self._kinds.examples(index, self._heaps[index].marks.engine, kinds, list(_IN_USE), _EXAMPLES)

    def _of_class(self, kind: int, module: int, offset: int, name: str, evidence: str) -> Optional[TypeName]:
        """Return the type of the blocks of a kind, which begin with a vtable pointer of a class, or None."""
        from dmods.graph.types.class_size import object_name
        from dmods.graph.types.vtable_blocks import VtableBlocks  # heaps of C have no vtables

        found = self._modules.address(module, offset)
        if found is None:
            return None
        if self._with_vtables is None:
            self._with_vtables = VtableBlocks(self._heaps, self._rows, _has_vtable, self._first_blocks)
        return object_name(*found, name, self._with_vtables.alike(kind, self._rows[kind]), evidence)

    def _cache(self, low: int, high: int) -> str:
        if not self._allocator:
            names = {one.allocator for heap in self._heaps for one in heap.heaps if one.is_used}
            self._allocator = names.pop().split()[-1] if len(names) == 1 else "malloc"
        return f"{self._allocator}-{low}" if low == high else f"{self._allocator}-{low}..{high}"

    def _class(self, module: int, offset: int) -> Optional[str]:
        from dmods.heap.content import class_of

        found = self._modules.address(module, offset)
        return class_of(*found) if found is not None else None

    def _place(self, module: int, offset: int) -> str:
        found = self._modules.address(module, offset)
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
        found = self._modules.address(module, offset)
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
        size = self._heaps[0].words.size
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
        found = self._modules.address(module, offset)
        symbol = found[0].symbol_at(found[1]) if found is not None else None
        return f"code {_engine.demangle(symbol.name)}" if symbol is not None else "code"


def _has_vtable(row: _engine.KindRow) -> bool:
    return row.form == OBJECT or (row.form == SHAPE and row.words[0][0] == _TABLE)


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
