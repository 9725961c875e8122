"""The attributes of an instance of a class: in its dictionary, or in values that its class has the names for."""

from __future__ import annotations

import struct
from typing import Optional

from dmods.runtimes.python.dicts import Keys, entries, keys_at
from dmods.runtimes.python.memory import HEAPTYPE, Objects, Type

#: A dictionary or values outside of the object: the second and third word before its collector's links.
MANAGED_VALUES, MANAGED_DICT = 32, 24
_CACHED_KEYS = {(3, 9): 864, (3, 10): 872, (3, 11): 872, (3, 15): 888}  # ht_cached_keys; 880 since 3.12
_CLASS_DICT, _DICT_OFFSET = 264, 288  # tp_dict and tp_dictoffset (Include/cpython/object.h)
_MANAGED, _INLINE = 1 << 4, 1 << 2  # Py_TPFLAGS_MANAGED_DICT, Py_TPFLAGS_INLINE_VALUES
_MOST = 1000


def is_managed(objects: Objects, kind: Type) -> bool:
    """Return whether the words before an instance lead to its dictionary or values (3.11 and later)."""
    return objects.version >= (3, 11) and bool(kind.flags & _MANAGED)


def inline_values(objects: Objects, kind: Type) -> Optional[int]:
    """Return where an instance has its first value inside (3.13 and later), or None."""
    return kind.basicsize + 8 if objects.version >= (3, 13) and kind.flags & _INLINE else None


def dict_offset(objects: Objects, kind: Type) -> int:
    """Return where an instance has the pointer to its dictionary. 0 or less: it has none, or elsewhere."""
    word = objects.words.at(kind.address + _DICT_OFFSET) or 0
    return int(struct.unpack("<q", struct.pack("<Q", word))[0])


def shared_keys(objects: Objects, kind: Type) -> Optional[Keys]:
    """Return the names that a class has for the values of its instances (ht_cached_keys), or None."""
    place = _CACHED_KEYS.get(objects.version, 880)
    return keys_at(objects, objects.words.at(kind.address + place) or 0) if kind.flags & HEAPTYPE else None


def attributes(objects: Objects, address: int) -> dict[str, int]:
    """Return the attributes of an instance: addresses of objects by name. {} where they cannot be read."""
    kind = objects.type_of(address)
    if kind is None:
        return {}
    words, version, table, values = objects.words, objects.version, 0, 0
    if is_managed(objects, kind):
        table = words.at(address - MANAGED_DICT) or 0
        if version == (3, 11):
            values = words.at(address - MANAGED_VALUES) or 0
        elif version == (3, 12) and table & 1:
            table, values = 0, table + 1
        elif not table:
            values = address + (inline_values(objects, kind) or -address)
    elif dict_offset(objects, kind) > 0:
        table = words.at(address + dict_offset(objects, kind)) or 0
    if values:
        return _named(objects, _values(objects, kind, values))
    return _named(objects, entries(objects, table, _MOST)) if table else {}


def class_module(objects: Objects, kind: Type) -> Optional[str]:
    """Return the name of the module that has the class statement of a class, or None."""
    known = objects.class_modules
    if kind.address not in known:
        own = objects.words.at(kind.address + _CLASS_DICT) if kind.flags & HEAPTYPE else None
        found = _named(objects, entries(objects, own, _MOST)) if own else {}
        known[kind.address] = objects.text(found.get("__module__", 0), 256)
    return known[kind.address]


def _values(objects: Objects, kind: Type, start: int) -> list[tuple[int, int]]:
    keys = shared_keys(objects, kind)
    count = min(keys.used, _MOST) if keys is not None else 0
    found = objects.words.many(start, count) if count else None
    if keys is None or found is None:
        return []
    names = (objects.words.at(keys.start + number * keys.stride) or 0 for number in range(count))
    return [(name, value) for name, value in zip(names, found) if value]


def _named(objects: Objects, pairs: list[tuple[int, int]]) -> dict[str, int]:
    named = ((objects.text(name, 256), value) for name, value in pairs)
    return {name: value for name, value in named if name is not None}
