"""What a block looks like: the class of a C++ object, a string, and what its words point to."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dmods.names import describe_code
from dmods.target import AddressRange, Target

if TYPE_CHECKING:
    from dmods.heap import Block, ProcessHeap

_MOST_BYTES = 1 << 16  # of a block that are looked at
_MOST_NAME = 1024
_LEAST_STRING = 4


@dataclass(frozen=True)
class Content:
    """``class_name`` by vtable; ``text`` where it begins with one; ``points_to`` (offset, address, what) for its first pointers."""

    class_name: Optional[str]
    text: Optional[str]
    points_to: list[tuple[int, int, str]]

    def summary(self) -> str:
        """One short phrase; "" when nothing is known."""
        if self.class_name:
            return f"C++ object of class {self.class_name}"
        if self.text is not None:
            return f"string {self.text!r}"
        if self.points_to:
            offset, address, what = self.points_to[0]
            more = f" (and {len(self.points_to) - 1} more)" if len(self.points_to) > 1 else ""
            return f"+{offset:#x} points to {what} {address:#x}{more}"
        return ""


def look(heap: ProcessHeap, block: Block, most: int = 8) -> Content:
    """What the block's bytes look like."""
    target = heap.target
    word = target.arch.word
    data = target.image().read(block.address, min(block.size, _MOST_BYTES))
    count = len(data) // word
    words = struct.unpack(f"<{count}{'Q' if word == 8 else 'I'}", data[: count * word])
    class_name = class_of(target, words[0]) if words else None
    text = None if class_name else string_in(data)
    points = [] if text is not None else list(_pointers(heap, block, words, word, most))
    return Content(class_name, text, points)


def _pointers(
    heap: ProcessHeap, block: Block, words: tuple[int, ...], word: int, most: int
) -> Iterator[tuple[int, int, str]]:
    found = 0
    for index, value in enumerate(words):
        other = heap.block_at(value)
        what = None
        if other is not None and other.address != block.address:
            what = f"{_STATES[other.state]} block of {other.size} bytes"
        elif other is None and value > 4096 and (mapping := mapping_of(heap.target, value)) is not None and mapping.path:
            what = describe_code(heap.target, value)
        if what:
            yield index * word, value, what
            found += 1
            if found == most:
                return


_STATES = {0: "live", 1: "free", 2: "leaked", 3: "leaked"}


def string_in(data: bytes) -> Optional[str]:
    """The text that the bytes begin with, up to its NUL (or the end): at least four printable characters of UTF-8."""
    end = data.find(0)
    raw = data[: end if end >= 0 else len(data)]
    try:
        text = raw[:256].decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(raw[:256]) - 4:
            return None
        text = raw[: error.start].decode("utf-8")
    if len(text) < _LEAST_STRING or not all(c.isprintable() or c in "\t\n\r" for c in text):
        return None
    return text if len(raw) <= 256 else text + "..."


def mapping_of(target: Target, address: int) -> Optional[AddressRange]:
    mappings = target.mappings()
    low, high = 0, len(mappings)
    while low < high:  # bisect has no key before Python 3.10
        middle = (low + high) // 2
        if mappings[middle].end <= address:
            low = middle + 1
        else:
            high = middle
    return mappings[low] if low < len(mappings) and address in mappings[low] else None


def class_of(target: Target, vptr: int) -> Optional[str]:
    """The class whose vtable ``vptr`` points into, from its run-time type information: works in stripped programs too.

    Itanium C++ ABI 2.5.2: the word before the first virtual function is the ``type_info``, 2.9.5: whose second word is the name.
    """
    word = target.arch.word
    vtable = mapping_of(target, vptr)
    if vtable is None or vptr % word or vtable.path is None:
        return None
    image = target.image()

    def pointer(address: int) -> int:
        return int.from_bytes(image.read(address, word), "little")

    offset_to_top = int.from_bytes(image.read(vptr - 2 * word, word), "little", signed=True)
    info = pointer(vptr - word)
    where = mapping_of(target, info)
    if where is None or where.path is None or info % word or not -(1 << 20) < offset_to_top <= 0:
        return None
    name_at = pointer(info + word) & ((1 << (8 * word - 1)) - 1)
    if (named := mapping_of(target, name_at)) is None or named.path is None:
        return None
    raw = image.read(name_at, _MOST_NAME).split(b"\0")[0]
    if not 2 <= len(raw) < _MOST_NAME or not raw.isascii():
        return None
    mangled = raw.decode("ascii").lstrip("*")
    if not all(c.isalnum() or c in "_.$" for c in mangled):
        return None
    return _demangled_type(mangled)


def _demangled_type(mangled: str) -> Optional[str]:
    """``N4test3FooE`` -> test::Foo: typeinfo names are types in mangled form, without the _ZTS."""
    from dmods import _engine

    full = f"_ZTS{mangled}"
    text = _engine.demangle(full)
    if text is None or text == full:
        return None
    prefix = "typeinfo name for "
    return text[len(prefix) :] if text.startswith(prefix) else text
