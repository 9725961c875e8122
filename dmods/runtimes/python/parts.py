"""The part of an object of CPython that a word of it is: an item, an attribute, as Python's own expressions have it.

A path leads from block to block, and a container may have several: a dict and its table, a list and its buffer. So a
``Parts`` reads the words of a path in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from dmods.runtimes.python.attributes import (
    MANAGED_DICT,
    MANAGED_VALUES,
    dict_offset,
    inline_values,
    is_managed,
    shared_keys,
)
from dmods.runtimes.python.coroutines import waiting_at
from dmods.runtimes.python.describe import given, object_in, value_of
from dmods.runtimes.python.dicts import KEYS, VALUES, Keys, keys_at, values_at
from dmods.runtimes.python.frame_locals import frame_locals
from dmods.runtimes.python.memory import DICT, LIST, TUPLE, Type
from dmods.runtimes.python.runtime import Python, PythonFrame

KEY, ITEM = "(key)", "(item)"  # a key of a dict; an object in a set or a deque
_SIMPLE = ("str", "bytes", "int", "float", "bool", "NoneType")
_MOST_BASES, _MOST_MEMBERS = 64, 1000
_MEMBERS = 240  # tp_members (Include/cpython/object.h)
_FRAMES = {"generator": ".gi_frame", "coroutine": ".cr_frame", "async_generator": ".ag_frame"}
_SET_TABLE, _SET_SMALL = 40, 64  # table and smalltable of a set (Include/cpython/setobject.h)
_DEQUE_ENDS = (24, 32)  # leftblock and rightblock
_DEQUE_LINK = 520  # rightlink in a block of a deque; leftlink is at its beginning (Modules/_collectionsmodule.c)


class Parts:
    """Says which part each word of a path is."""

    def __init__(self, python: Python) -> None:
        self._python = python
        self._objects = python.objects
        self._of: tuple[str, int] = ("", 0)  # whose table or buffer the next block is: its kind, the object

    def first(self, block: int, size: int, words: Iterable[int]) -> Optional[tuple[int, str]]:
        """Return the first of some words in the next block that is a known part, with the part; None where none is.

        A part is like "['name']", ".name", KEY or ITEM. "": the word leads to another block of the same object.
        """
        kind, owner = self._of
        found = object_in(self._objects, block, size)
        start = given(self._objects, block)
        own = self._objects.type_of(found) if found is not None else None
        for at in words:
            if found is None:
                part = self._of_table(kind, owner, start, at)
            else:
                self._of = ("", 0)
                how = "attributes" if kind == "instance" else "items"
                part = self._of_object(own, found, at, how) if own is not None else None
            if part is not None:
                return at, part
        return None

    def _of_object(self, kind: Type, address: int, at: int, how: str) -> Optional[str]:
        part = self._item(kind, address, at, how)
        if (part is None and kind.name in _FRAMES) or kind.name == "frame":
            return self._of_frame(kind, address, at)
        return part if part is not None else self._of_instance(kind, address, at)

    def _item(self, kind: Type, address: int, at: int, how: str) -> Optional[str]:
        """Return the part that a word of a container is."""
        words, offset, part = self._objects.words, at - address, None
        first = 32 if self._objects.version >= (3, 14) else 24
        if kind.flags & DICT and offset in (KEYS, VALUES):
            self._of, part = (how if offset == KEYS else f"{how} of values", address), ""
        elif kind.flags & LIST and offset == 24:
            self._of, part = ("list", words.at(at) or 0), ""
        elif kind.flags & TUPLE and 0 <= offset - first < 8 * (words.at(address + 16) or 0):
            part = f"[{(offset - first) // 8}]"
        elif kind.name in ("set", "frozenset") and offset >= _SET_TABLE:
            self._of = ("set", address)
            part = "" if offset == _SET_TABLE else ITEM if offset >= _SET_SMALL else None
        elif kind.name == "collections.deque" and offset in _DEQUE_ENDS:
            self._of, part = ("deque", address), ""
        elif kind.name == "cell" and offset == 16:
            part = ".cell_contents"
        return part

    def _of_frame(self, kind: Type, address: int, at: int) -> Optional[str]:
        """Return the local variable that a word of a frame, or of a generator that has its frame inside, is."""
        if kind.name == "frame":
            return self._local(self._python.frame_at(address), at) if self._objects.version <= (3, 10) else None
        if self._objects.version <= (3, 10):
            return _FRAMES[kind.name] if at - address == 16 else None
        found = waiting_at(self._python, address)
        local = self._local(found.frame, at) if found is not None else None
        return None if local is None else _FRAMES[kind.name] + local

    def _local(self, frame: Optional[PythonFrame], at: int) -> Optional[str]:
        places = frame_locals(self._python, frame.address, frame.code.address) if frame is not None else None
        number = (at - places.start) // 8 if places is not None else -1
        return f".f_locals[{places.names[number]!r}]" if places and 0 <= number < len(places.names) else None

    def _of_instance(self, kind: Type, address: int, at: int) -> Optional[str]:
        objects, offset = self._objects, at - address
        version, managed = objects.version, is_managed(objects, kind)
        if managed and version == (3, 11) and offset == -MANAGED_VALUES:
            self._of = ("instance values", address)
            return ""
        if managed and offset == -MANAGED_DICT:
            tagged = version == (3, 12) and (objects.words.at(at) or 0) & 1
            self._of = ("instance values" if tagged else "instance", address)
            return ""
        inline = inline_values(objects, kind)
        if inline is not None and offset >= inline:
            return self._attribute(kind, (offset - inline) // 8)
        if offset == (16 if kind.name == "module" else dict_offset(objects, kind)) > 0:
            self._of = ("instance", address)
            return ""
        return self._member(kind, offset)

    def _of_table(self, kind: str, owner: int, start: int, at: int) -> Optional[str]:
        """Return the part that a word is which lies in memory without an object. ``start``: where the memory begins."""
        if kind == "list":
            return f"[{(at - owner) // 8}]" if at >= owner else None
        if kind == "deque":
            return "" if at - start in (0, _DEQUE_LINK) else ITEM
        if kind == "instance values":
            objects = self._objects
            own, version = objects.type_of(owner), objects.version
            first = objects.words.at(owner - (MANAGED_VALUES if version == (3, 11) else MANAGED_DICT)) or 0
            return self._attribute(own, (at - first - (version == (3, 12))) // 8) if own is not None else None
        return ITEM if kind == "set" else self._of_dict(kind, owner, at)

    def _of_dict(self, kind: str, owner: int, at: int) -> Optional[str]:
        """Return the part that a word of a dict's table is, or of the values of a dict that shares its keys."""
        keys = keys_at(self._objects, self._objects.words.at(owner + KEYS) or 0) if kind else None
        if keys is None:
            return None
        attributes = kind.startswith("attributes")
        if kind.endswith("values"):
            return self._key(keys, (at - (values_at(self._objects, owner) or at + 8)) // 8, attributes)
        number, place = divmod(at - keys.start, keys.stride)
        if place == 0:
            return KEY if 0 <= number < keys.used else None
        return self._key(keys, number, attributes) if place == 8 else None

    def _key(self, keys: Keys, number: int, attributes: bool) -> Optional[str]:
        if not 0 <= number < keys.used:
            return None
        key = self._objects.words.at(keys.start + number * keys.stride) or 0
        kind = self._objects.type_of(key)
        if kind is None:
            return None
        name = self._objects.text(key, 256)
        if attributes and name is not None and name.isidentifier():
            return f".{name}"
        return f"[{value_of(self._objects, key) if kind.name in _SIMPLE else f'<{kind.name}>'}]"

    def _attribute(self, kind: Type, number: int) -> Optional[str]:
        """Return the attribute by its number among the values of an instance: its class has the names."""
        keys = shared_keys(self._objects, kind)
        return self._key(keys, number, True) if keys is not None else None

    def _member(self, kind: Type, offset: int) -> Optional[str]:
        """Return the member at the offset of an object (PyMemberDef: name, type, offset, flags, doc): ``__slots__``."""
        words = self._objects.words
        at: Optional[Type] = kind
        for _step in range(_MOST_BASES):
            if at is None:
                return None
            table = words.at(at.address + _MEMBERS) or 0
            for number in range(_MOST_MEMBERS if table else 0):
                row = words.many(table + 40 * number, 3)
                if row is None or not row[0]:
                    break
                if row[2] == offset:
                    name, end, _ = self._objects.image.read(row[0], 256).partition(b"\0")
                    text = name.decode("utf-8", "replace")
                    return f".{text}" if end and text.isidentifier() else None
            at = self._objects.type_at(at.base) if at.base else None
        return None
