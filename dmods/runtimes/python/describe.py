"""Say what an object of CPython is: its type, its references and a short value."""

from __future__ import annotations

from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.memory import BYTES, DICT, LIST, LONG, TUPLE, TYPE, UNICODE, Objects
from dmods.target import Target

_LONGEST = 60  # characters of a value
_SIMPLE = ("str", "bytes", "int", "float", "bool")
_HOOK, _MOST_HOOKS = b"\xfd" * 7, 32  # Objects/obmalloc.c: the bytes before memory; how many bytes hooks take at most
_STARTS = (0, 16, 32)  # bytes before an object: the collector's links, two more pointers


class Description(NamedTuple):
    """An object. ``value`` is like its repr, cut; "" where its type is not a simple one."""

    address: int
    type: str
    value: str
    references: Optional[int]
    immortal: bool

    @property
    def phrase(self) -> str:
        """Return the type and the value: "Python dict, 3 items"."""
        simple = self.type in _SIMPLE
        return f"Python {self.type}" + (f" {self.value}" if simple else f", {self.value}" if self.value else "")


def describe(objects: Objects, address: int) -> Optional[Description]:
    """Return what the object at the address is, or None where no object is."""
    kind = objects.type_of(address)
    count = objects.refcount(address)
    if kind is None or not count:
        return None
    return Description(address, kind.name, value_of(objects, address), count, objects.immortal(count))


def in_block(target: Target, block: int, size: int) -> Optional[Description]:
    """Return the object of CPython that a block in use holds, or None."""
    python = find_python(target).python
    if python is None:
        return None
    at = object_in(python.objects, block, size)
    return describe(python.objects, at) if at is not None else None


def dict_key(target: Target, address: int) -> Optional[str]:
    """Return the repr of the str whose value in a dict the word at the address is, or None.

    In the entries of a dict, a value stands behind its key (Include/internal/pycore_dict.h).
    """
    python = find_python(target).python
    pair = python.objects.words.many(address - 8, 2) if python is not None and address % 8 == 0 else None
    if python is None or pair is None:
        return None
    key = python.objects.text(pair[0], _LONGEST)
    return repr(key) if key is not None and python.objects.type_of(pair[1]) is not None else None


def given(objects: Objects, block: int) -> int:
    """Return where the memory begins that CPython was given of a block: behind the words of debug hooks, if it has any.

    The engine has the same rule (engine/core/src/python/census.rs).
    """
    at = block
    while at < block + _MOST_HOOKS and objects.image.read(at + 9, 7) == _HOOK:
        at += 16
    return at


def object_in(objects: Objects, block: int, size: int) -> Optional[int]:
    """Return where the object in a block begins, or None if the block holds none.

    The engine's census has the same rules (engine/core/src/python/census.rs): what stands before the object must be
    what its type asks for, and before that are the words of debug hooks, twice in large blocks.
    """
    skip = given(objects, block) - block
    for start in _STARTS:
        at = block + skip + start
        kind = objects.type_of(at) if start + skip + 16 <= size else None
        if kind is not None and _before(kind.flags, objects.version) == start and _alive(objects, at):
            # A compact str is smaller than what its type says (PyASCIIObject).
            least = 40 if kind.flags & UNICODE else kind.basicsize
            return at if skip + start + least <= size else None
    return None


def _before(flags: int, version: tuple[int, int]) -> int:
    """Return the bytes before an object of a type with these flags (_PyType_PreHeaderSize)."""
    managed = 0 if version <= (3, 10) else flags >> 4 & 1 if version == (3, 11) else int(bool(flags >> 3 & 3))
    return (flags >> 14 & 1) * 16 + managed * 16


def _alive(objects: Objects, address: int) -> bool:
    word = objects.words.at(address) or 0
    if objects.version >= (3, 14):
        return bool(word & 0xFFFFFFFF) and not word >> 32 & 0xFFFF
    return 0 < word < 1 << 40


def value_of(objects: Objects, address: int) -> str:
    """Return the value of a simple object, or how large a container is; "" where neither is known."""
    kind = objects.type_of(address)
    if kind is None:
        return ""
    for flag, value in _VALUES:
        if kind.flags & flag:
            return value(objects, address)
    if kind.name == "float":
        number = objects.float(address)
        return "" if number is None else repr(number)
    if kind.name == "NoneType":
        return "None"
    if kind.name == "collections.deque":
        return _length(objects, address, 16)
    return _length(objects, address, 24) if kind.name in ("set", "frozenset") else _named(objects, address, kind.name)


def _text(objects: Objects, address: int) -> str:
    text = objects.text(address, _LONGEST)
    return "" if text is None else _cut(repr(text))


def _bytes(objects: Objects, address: int) -> str:
    raw = objects.raw(address, _LONGEST)
    return "" if raw is None else _cut(repr(raw))


def _integer(objects: Objects, address: int) -> str:
    number = objects.integer(address)
    if number is None:
        return "a large int"
    kind = objects.type_of(address)
    if kind is not None and kind.name == "bool":
        return str(bool(number))
    return _cut(str(number) if abs(number) < 1 << 4096 else hex(number))


def _class(objects: Objects, address: int) -> str:
    own = objects.type_at(address)
    return "" if own is None else f"<class {own.name!r}>"


def _length(objects: Objects, address: int, place: int = 16) -> str:
    """Return how many items a container has that counts them at that offset."""
    length = objects.words.at(address + place)
    return "" if length is None else f"{length} item{'' if length == 1 else 's'}"


_VALUES = (
    (UNICODE, _text),
    (BYTES, _bytes),
    (LONG, _integer),
    (TYPE, _class),
    (DICT, _length),
    (LIST, _length),
    (TUPLE, _length),
)


def _named(objects: Objects, address: int, kind: str) -> str:
    """Return the name of a function or module, where it is cheap."""
    if kind == "module":
        return ""
    if kind == "function":
        # Include/cpython/funcobject.h: func_name at 32 since 3.11 (after globals and builtins), before at 64
        place = 32 if objects.version >= (3, 11) else 64
        name = objects.text(objects.words.at(address + place) or 0, _LONGEST)
        return f"<function {name}>" if name is not None else ""
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
