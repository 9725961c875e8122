"""Objects of CPython in the memory of a process: their types, and the values of simple ones.

Nothing here is believed unless it is proven: an object has a type whose types end at ``type``, which is its own type.
"""

from __future__ import annotations

import struct
from typing import Optional

from dmods._engine import Image
from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words

_MOST_NAME = 200
_MOST_TEXT = 1 << 16  # characters of a str that are read
_MOST_META = 8  # metaclasses of metaclasses that are followed
_MOST_BASES = 64
# Include/object.h: Py_TPFLAGS_*
LONG, LIST, TUPLE, BYTES, UNICODE, DICT, EXCEPTION, TYPE = (1 << bit for bit in range(24, 32))
_FAMILIES = 0xFF << 24
_FROZENDICT = b"frozendict\0"
HEAPTYPE, HAVE_GC, BASETYPE = 1 << 9, 1 << 14, 1 << 10
_BASICSIZE, _ITEMSIZE, _FLAGS, _BASE, _TYPE_BYTES = 32, 40, 168, 256, 264  # in PyTypeObject (Include/cpython/object.h)
ALIGN = 8


class Type(NamedTuple):
    """A type: its address, its name (``tp_name``), the sizes of its objects, and its flags."""

    address: int
    name: str
    basicsize: int
    itemsize: int
    flags: int
    base: int

    @property
    def short(self) -> str:
        """Return the name without the module, as ``__name__`` has it."""
        return self.name.rpartition(".")[2]


class Objects:
    """Reads objects. What it has learned of types is kept."""

    def __init__(self, image: Image, version: tuple[int, int]) -> None:
        self.image = image
        self.version = version
        self.words = Words(image, 8)
        self._types: dict[int, Optional[Type]] = {}
        #: The names of the modules of classes, by the address of the class: see attributes.py.
        self.class_modules: dict[int, Optional[str]] = {}

    def type_of(self, address: int) -> Optional[Type]:
        """Return the type of the object at the address, or None where no object is."""
        if address % ALIGN or address <= 0:
            return None
        kind = self.words.at(address + 8)
        return self.type_at(kind) if kind is not None else None

    def type_at(self, address: int) -> Optional[Type]:
        """Return the type object at the address, or None where no type object is there."""
        if address not in self._types:
            if len(self._types) > 1 << 18:
                self._types.clear()
            self._types[address] = self._read_type(address)
        return self._types[address]

    def _read_type(self, address: int) -> Optional[Type]:
        if address % ALIGN or not self._is_type(address):
            return None
        data = self.image.read(address, _TYPE_BYTES)
        if len(data) != _TYPE_BYTES:
            return None
        (name_at,) = struct.unpack_from("<Q", data, 24)
        basic, item = struct.unpack_from("<qq", data, _BASICSIZE)
        flags, base = struct.unpack_from("<Q", data, _FLAGS)[0], struct.unpack_from("<Q", data, _BASE)[0]
        raw, end, _ = self.image.read(name_at, _MOST_NAME).partition(b"\0")
        if not end or not raw or not 16 <= basic < 1 << 24 or not 0 <= item < 1 << 24:
            return None
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            return None
        if self.version >= (3, 15) and not flags & _FAMILIES and self._is_frozendict(address):
            flags |= DICT
        return Type(address, name, basic, item, flags, base) if name.isprintable() else None

    def _is_frozendict(self, address: int) -> bool:
        """Return whether the type is frozendict or inherits from it: its objects begin as a dict, without its flag."""
        for _step in range(_MOST_BASES):
            if not address:
                return False
            name = self.words.at(address + 24)
            if name and self.image.read(name, len(_FROZENDICT)) == _FROZENDICT:
                return not (self.words.at(address + _FLAGS) or 0) & HEAPTYPE
            address = self.words.at(address + _BASE) or 0
        return False

    def _is_type(self, address: int) -> bool:
        """Return whether the object at the address is a type.

        Its types end at one that is its own type, named ``type``, and its own type inherits from that.
        """
        meta = self.words.at(address + 8)
        flags = self.words.at(meta + _FLAGS) if meta is not None else None
        if flags is None or not flags & TYPE:
            return False
        seen = address
        for _step in range(_MOST_META):
            kind = self.words.at(seen + 8)
            if kind is None or kind % ALIGN or kind == 0:
                return False
            if kind == seen:
                name = self.words.at(seen + 24)
                return name is not None and self.image.read(name, 5) == b"type\0"
            seen = kind
        return False

    def is_kind(self, address: int, flag: int) -> bool:
        """Return whether the object at the address has a type with that flag (an instance of a subclass has it too)."""
        kind = self.type_of(address)
        return kind is not None and bool(kind.flags & flag)

    # -- values -------------------------------------------------------------------------------------------------------

    def refcount(self, address: int) -> Optional[int]:
        """Return ob_refcnt. From 3.14 on it has 32 bits (Include/refcount.h), before that it is a word."""
        word = self.words.at(address)
        return None if word is None else word & 0xFFFFFFFF if self.version >= (3, 14) else word

    def immortal(self, count: int) -> bool:
        """Return whether a count of references says that the object lives forever (PEP 683, 3.12 and later).

        All of them set the uppermost of the lower 32 bits (``_Py_IMMORTAL_REFCNT``, ``_Py_IMMORTAL_INITIAL_REFCNT``).
        """
        return self.version >= (3, 12) and bool(count & 0x80000000)

    def text(self, address: int, most: int = _MOST_TEXT) -> Optional[str]:
        """Return the value of a str, or None where no str is.

        Include/cpython/unicodeobject.h: length at 16, state at 32, then the characters: after 40 bytes (48 before 3.12)
        for ASCII, else after 56 (72).
        """
        if not self.is_kind(address, UNICODE):
            return None
        head = self.image.read(address, 40)
        if len(head) != 40:
            return None
        length, state = struct.unpack_from("<Q", head, 16)[0], struct.unpack_from("<I", head, 32)[0]
        new = self.version >= (3, 12)
        kind, compact, ascii_ = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1  # two bits for interning come first
        if not compact or kind not in (1, 2, 4):
            return None
        start = address + ((40 if new else 48) if ascii_ else (56 if new else 72))
        take = min(length, most)
        raw = self.image.read(start, take * kind)
        if len(raw) != take * kind:
            return None
        coding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[kind]
        value = raw.decode(coding, "replace")
        return value + "..." if take < length else value

    def raw(self, address: int, most: int = 1 << 20) -> Optional[bytes]:
        """Return the value of a bytes object, cut after ``most`` bytes; None where no bytes object is."""
        if not self.is_kind(address, BYTES):
            return None
        length = self.words.at(address + 16)
        if length is None:
            return None
        data = self.image.read(address + 32, min(length, most))
        return data if len(data) == min(length, most) else None

    def integer(self, address: int, most: int = 1000) -> Optional[int]:
        """Return the value of an int of up to ``most`` digits (30 bits each), or None.

        Until 3.11, ob_size has the number of digits and the sign. From 3.12 on lv_tag has them (Include/cpython/
        longintrepr.h): the lowest two bits are the sign (2: negative, 1: zero), the number begins at bit 3.
        """
        word = self.words.at(address + 16)
        if word is None or not self.is_kind(address, LONG):
            return None
        if self.version >= (3, 12):
            count, negative = word >> 3, word & 3 == 2
            count = 0 if word & 3 == 1 else count
        else:
            signed = word - (1 << 64) if word >> 63 else word
            count, negative = abs(signed), signed < 0
        if count > most:
            return None
        data = self.image.read(address + 24, 4 * count)
        if len(data) != 4 * count:
            return None
        value = 0
        for digit in reversed(struct.unpack(f"<{count}I", data)):
            if digit >> 30:
                return None
            value = value << 30 | digit
        return -value if negative else value

    def float(self, address: int) -> Optional[float]:
        """Return the value of a float (exactly that type), or None."""
        kind = self.type_of(address)
        data = self.image.read(address + 16, 8) if kind is not None and kind.name == "float" else b""
        value: float = struct.unpack("<d", data)[0] if len(data) == 8 else 0.0
        return value if len(data) == 8 else None
