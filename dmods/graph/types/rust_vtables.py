"""Vtables of Rust's trait objects.

A trait object is a pair (pointer to the value, pointer to the vtable), in its holder. A vtable is {drop_in_place<T> or
0, size, alignment, methods} in constant memory (rustc_middle/src/ty/vtable.rs). It has no symbol of its own. The type
is named by `drop_in_place<T>` and by the methods, ``<T as Trait>::method`` or a closure.

LLVM folds functions with the same code, so a name may be that of another type: a structure whose only destructor is a
String's has the `drop_in_place` of another one. A vtable whose names disagree has a type only if the others of the same
trait tell which name is the folded one.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.graph.types.type_name import Mark, TypeName
from dmods.target import Module, Target

_DROP = "drop_in_place"
# Legacy and v0 mangling of "<T as Trait>" and of closures.
_METHODS = ("$u20$as$u20$", "_RNvX", "$u7b$$u7b$closure$u7d$$u7d$", "_RNC")
# A parameter of an impl, or a pointer to one. Types have their crate before them.
_GENERIC = regex(r"(?:&(?:mut )?|\*(?:const|mut) )*[A-Z]\w*")
_HEAD = 3  # words before the methods
_MOST_METHODS = 64
_MOST_FUNCTIONS = 1 << 17
_MOST_HITS = 64  # places that hold one function
_MOST_ALIGNMENT = 1 << 12
_MOST_SIZE = 1 << 32
_SOURCES = 2  # functions that must name a type where functions are folded


class Method(NamedTuple):
    """A function that names the type it is for. ``trait`` is "" for a closure."""

    type: str
    trait: str


@dataclass(frozen=True)
class Vtable:
    """A vtable: the size of its type, the type that its drop_in_place names, its methods that name a type, and the
    addresses of all its functions.
    """

    address: int
    size: int
    drop: Optional[str]
    methods: tuple[Method, ...]
    functions: tuple[int, ...]

    @property
    def trait(self) -> str:
        """Return the trait of the first method."""
        return self.methods[0].trait

    @property
    def names(self) -> set[str]:
        """Return the types that the functions name."""
        return {method.type for method in self.methods} | ({self.drop} if self.drop is not None else set())


def rust_marks(target: Target) -> Iterator[Mark]:
    """Yield the marks of Rust programs."""
    drops = {symbol.module for symbol in target.symbols_with((_DROP,))}
    if not drops:
        return
    found: dict[int, set[Method]] = defaultdict(set)
    dropped: dict[int, set[str]] = defaultdict(set)
    for symbol in [each for each in target.symbols_with((_DROP, *_METHODS)) if each.module in drops][:_MOST_FUNCTIONS]:
        name = _engine.demangle(symbol.name)
        of_drop, method = dropped_type(name), method_of(name)
        if of_drop is not None:
            dropped[symbol.address].add(of_drop)
        elif method is not None:
            found[symbol.address].add(method)
    # A function with several names was folded by the linker, and says nothing.
    methods = {address: next(iter(names)) for address, names in found.items() if len(names) == 1}
    drop_of = {address: next(iter(names)) for address, names in dropped.items() if len(names) == 1}
    for module in target.modules():
        if module.name in drops:
            for vtable, text in resolved(list(_vtables(target, module, methods, drop_of))):
                yield _mark(target, vtable, text)


def _mark(target: Target, vtable: Vtable, text: str) -> Mark:
    name = TypeName(text, "Rust vtable", "likely")
    counted = TypeName(f"Rc or Arc of {text}", "Rust vtable", "likely")
    return Mark(vtable.address, name, -1, size=vtable.size, counted=counted)


def dropped_type(name: str) -> Optional[str]:
    """Return T for ``core::ptr::drop_in_place<T>``, or None."""
    outer, found, rest = name.partition(f"::{_DROP}")
    rest = rest[2:] if rest.startswith("::<") else rest
    return rest[1:-1] if found and outer.endswith("ptr") and rest.startswith("<") and rest.endswith(">") else None


def method_of(name: str) -> Optional[Method]:
    """Return the type and the trait of ``<T as Trait>::method``, or the closure; None for another function."""
    if name.endswith("{{closure}}") or (name.endswith("}") and "{closure#" in name.rpartition("::")[2]):
        return Method(name, "")
    if not name.startswith("<"):
        return None
    depth = 0
    for at, character in enumerate(name):
        depth += (character == "<") - (character == ">" and name[at - 1] != "-")
        if depth == 1 and name.startswith(" as ", at):
            rest = name[at + 4 :]
            # The older mangling says of a method that all types share only `<T as Trait>::method`.
            generic = _GENERIC.fullmatch(name[1:at]) is not None
            return None if generic else Method(name[1:at], rest.rpartition(">::")[0])
        if depth == 0:
            return None
    return None


def _vtables(target: Target, module: Module, methods: dict[int, Method], drop_of: dict[int, str]) -> Iterator[Vtable]:
    """Yield the vtables of a module, each once, in the order of their addresses."""
    word = target.arch.word
    inside = sorted(address for address in methods if module.start <= address < module.end)
    data = [(piece.start, piece.end) for piece in module.ranges if "x" not in piece.flags and "r" in piece.flags]
    wanted = [(address, address + 1) for address in inside]
    places = _engine.find_pointers(target.image(), data, word, wanted, _MOST_HITS) if wanted and data else []
    seen: set[int] = set()
    for at in sorted(at for found in places for at in found):
        start = _start(target, module, at)
        if start is None or start in seen:
            continue
        seen.add(start)
        vtable = _read(target, module, start, methods, drop_of)
        if vtable is not None:
            yield vtable


def _words(target: Target, start: int, count: int) -> Sequence[int]:
    word = target.arch.word
    data = target.image().read(start, count * word)
    have = len(data) // word
    return struct.unpack(f"<{have}{'Q' if word == 8 else 'I'}", data[: have * word])


def _is_code(module: Module, value: int) -> bool:
    return any(piece.start <= value < piece.end and "x" in piece.flags for piece in module.ranges)


def _is_head(size: int, alignment: int) -> bool:
    power = 0 < alignment <= _MOST_ALIGNMENT and not alignment & (alignment - 1)
    return power and size < _MOST_SIZE and size % alignment == 0


def _start(target: Target, module: Module, at: int) -> Optional[int]:
    """Return where the vtable begins that has a method at an address, or None."""
    word = target.arch.word
    first = max(module.start, at - (_MOST_METHODS + _HEAD) * word)
    before = _words(target, first, (at - first) // word)
    for back in range(1, len(before) - 1):
        value = before[-back]
        if _is_code(module, value):
            continue
        if back + 2 > len(before) or not _is_head(before[-back - 1], value):
            return None
        drop = before[-back - 2]
        return at - (back + 2) * word if not drop or _is_code(module, drop) else None
    return None


def _read(
    target: Target, module: Module, start: int, methods: dict[int, Method], drop_of: dict[int, str]
) -> Optional[Vtable]:
    values = _words(target, start, _HEAD + _MOST_METHODS + 2)
    drop, size = values[0], values[1]
    end = _HEAD
    while end < len(values) and _is_code(module, values[end]):
        end += 1
    # The next vtable may follow at once: its first word is a function, too.
    if end + 1 < len(values) and end > _HEAD + 1 and _is_head(values[end], values[end + 1]):
        end -= 1
    known = tuple(methods[value] for value in values[_HEAD:end] if value in methods)
    # drop_in_place of an unknown function may have any type: the methods alone decide.
    functions = (*([drop] if drop else []), *values[_HEAD:end])
    return Vtable(start, size, drop_of.get(drop), known, functions) if known and size else None


def resolved(vtables: Sequence[Vtable]) -> Iterator[tuple[Vtable, str]]:
    """Yield the vtables whose names agree on a type, and the type.

    Each type has its own copy of each method. Where two types share one of a trait, the compiler folds functions: then
    a single name is not enough.
    """
    folding = _folding(vtables)
    certain: dict[str, set[str]] = defaultdict(set)
    for vtable in vtables:
        if len(vtable.names) == 1 and vtable.drop is not None:
            certain[vtable.trait].update(vtable.names)
    for vtable in vtables:
        # A type has one vtable for a trait: the name of a type that has its own is folded here.
        names = vtable.names if len(vtable.names) == 1 else vtable.names - certain[vtable.trait]
        if len(names) == 1:
            (name,) = names
            sources = [method for method in vtable.methods if method.type == name]
            alone = len(sources) + (vtable.drop == name) < _SOURCES
            yield vtable, f"{name} or a type with the same code" if vtable.trait in folding and alone else name


def _folding(vtables: Sequence[Vtable]) -> set[str]:
    """Return the traits of which vtables of different types share a function."""
    types: dict[tuple[str, int], set[str]] = defaultdict(set)
    for vtable in vtables:
        for function in vtable.functions:
            types[vtable.trait, function].update(method.type for method in vtable.methods)
    return {trait for (trait, _function), names in types.items() if len(names) > 1}
