"""Tell what a block looks like: C++ objects by their vtables, text, and what its words point to."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.base.class_names import plain_class
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE, OWN, Block
from dmods.heap.heap import ProcessHeap
from dmods.heap.text_bytes import without_addresses
from dmods.heap.texts import MOST_READ, MOST_SHOWN, printable, text_in
from dmods.process.addresses import describe_code
from dmods.process.mappings import mapping_at
from dmods.runtimes.python.describe import in_block
from dmods.target import AddressRange, Target

_MOST_BYTES = 1 << 16  # of a block that are looked at
_MOST_NAME = 4096
_LOCAL = 16  # bytes of std::string's local buffer (libstdc++: _S_local_capacity + 1)


class Object(NamedTuple):
    """A C++ object with a vtable, ``offset`` bytes into the block."""

    offset: int
    class_name: str


class StdString(NamedTuple):
    """A libstdc++ std::string, ``offset`` bytes into the block, and its text."""

    offset: int
    text: str


@dataclass(frozen=True)
class Content:
    """A guess at the kind of data in a block, from its bytes.

    ``text`` is the text at the start of the block, in ``encoding``. ``points_to`` has (offset, address, what) of its
    first pointers. ``python`` is the object of CPython in the block, in words.
    """

    objects: list[Object] = field(default_factory=list)
    text: Optional[str] = None
    encoding: str = "UTF-8"
    strings: list[StdString] = field(default_factory=list)
    points_to: list[tuple[int, int, str]] = field(default_factory=list)
    python: Optional[str] = None

    @property
    def class_name(self) -> Optional[str]:
        """Return the class of the first object."""
        return self.objects[0].class_name if self.objects else None

    def summary(self) -> str:
        """Return one short phrase; "" when nothing is known."""
        if self.objects:
            return _objects_phrase(self.objects)
        if self.python is not None:
            return self.python
        if self.text is not None:
            return f"{'' if self.encoding == 'UTF-8' else f'{self.encoding} '}string {self.text!r}"
        if self.strings:
            return _strings_phrase(self.strings)
        if self.points_to:
            offset, address, what = self.points_to[0]
            more = f" (and {len(self.points_to) - 1} more)" if len(self.points_to) > 1 else ""
            return f"+{offset:#x} points to {what} {address:#x}{more}"
        return ""


def _objects_phrase(objects: Sequence[Object]) -> str:
    first = objects[0]
    steps = {after.offset - before.offset for before, after in zip(objects, objects[1:])}
    if len(steps) == 1 and {each.class_name for each in objects} == {first.class_name}:
        return f"{len(objects)} C++ objects of class {first.class_name}"
    where = f" at +{first.offset:#x}" if first.offset else ""
    return f"C++ object of class {first.class_name}{where}"


def _strings_phrase(strings: Sequence[StdString]) -> str:
    first = strings[0]
    if len(strings) > 1 and first.offset == 0:
        return f"{len(strings)} std::strings, the first {first.text!r}"
    where = f" at +{first.offset:#x}" if first.offset else ""
    return f"std::string{where} {first.text!r}"


def describe_content(heap: ProcessHeap, block: Block, most: int = 8) -> Content:
    """Return what the block's bytes look like, with its first ``most`` pointers."""
    target = heap.target
    data = target.image().read(block.address, min(_unguarded(heap, block), _MOST_BYTES))
    words = _words(data, target.arch.word)
    objects = list(_objects(target, words))
    python = in_block(target, block.address, block.size) if block.state != FREE and not objects else None
    if python is not None:
        return Content(points_to=list(_pointers(heap, block, words, most)), python=python.phrase)
    found = None if objects else text_in(without_addresses(target, block.address, data[:MOST_READ]))
    if found is not None:
        return Content(text=found.text, encoding=found.encoding)
    strings, pointers = list(_strings(heap, block, data)), list(_pointers(heap, block, words, most))
    return Content(objects, strings=strings, points_to=pointers)


def _unguarded(heap: ProcessHeap, block: Block) -> int:
    """Return how many bytes of a block are the program's: behind them comes the auditor's guard."""
    last = heap.records.last_words
    if last is not None and last.block == block.address and last.requested is not None:
        return min(block.size, last.requested)
    if block.state == FREE or not any(each.guards is not None for each in heap.records.recordings):
        return block.size
    record = heap.records.of_block(block.address)
    return min(block.size, record.requested) if record is not None else block.size


def _words(data: bytes, word: int) -> tuple[int, ...]:
    count = len(data) // word
    return struct.unpack(f"<{count}{'Q' if word == 8 else 'I'}", data[: count * word])


# -- pointers ---------------------------------------------------------------------------------------------------------


def _pointers(heap: ProcessHeap, block: Block, words: Sequence[int], most: int) -> Iterator[tuple[int, int, str]]:
    found = 0
    for index, value in enumerate(words):
        what = _pointee(heap, block, value)
        if what is not None:
            yield index * heap.target.arch.word, value, what
            found += 1
            if found == most:
                return


_STATES = {LIVE: "live", FREE: "free", DIRECT: "leaked", INDIRECT: "leaked", OWN: "jemalloc's own"}


def _pointee(heap: ProcessHeap, block: Block, value: int) -> Optional[str]:
    other = heap.block_at(value)
    if other is not None:
        return f"{_STATES[other.state]} block of {other.size} bytes" if other.address != block.address else None
    mapping = mapping_at(heap.target, value)
    return describe_code(heap.target, value) if mapping is not None and mapping.path else None


# -- strings ----------------------------------------------------------------------------------------------------------


def _strings(heap: ProcessHeap, block: Block, data: bytes) -> Iterator[StdString]:
    word = heap.target.arch.word
    at, last = 0, len(data) - 2 * word - _LOCAL
    while at <= last:
        text = _std_string(heap, block.address + at, data[at : at + 2 * word + _LOCAL])
        if text is not None:
            yield StdString(at, text)
            at += 2 * word + _LOCAL
        else:
            at += word


def _std_string(heap: ProcessHeap, address: int, data: bytes) -> Optional[str]:
    """Return the text of the std::string at ``address``, or None if the words there are not one.

    In libstdc++ (bits/basic_string.h) a string is a pointer, a length, then 16 local bytes or the capacity. The
    pointer leads to the local bytes, or to a block that has room for the capacity. The text ends with a NUL where the
    length says. An empty string cannot be told from other words.
    """
    word = heap.target.arch.word
    pointer, length, capacity = _words(data[: 3 * word], word)
    if pointer == address + 2 * word:
        raw = data[2 * word : 2 * word + length + 1] if 0 < length < _LOCAL else b""
    else:
        block = heap.block_at(pointer) if 0 < length <= capacity else None
        if block is None or block.address != pointer or not _LOCAL <= capacity < block.size:
            return None
        raw = heap.target.image().read(pointer, min(length, MOST_SHOWN) + 1)
        if length > MOST_SHOWN:
            ends = heap.target.image().read(pointer + length, 1) == b"\0"
            text = printable(raw[:MOST_SHOWN]) if ends else None
            return text + "..." if text is not None else None
    if len(raw) != length + 1 or raw[-1] != 0 or 0 in raw[:-1]:
        return None
    return printable(raw[:-1])


# -- C++ objects ------------------------------------------------------------------------------------------------------


def _objects(target: Target, words: Sequence[int]) -> Iterator[Object]:
    """Yield the objects with a vtable among the words. An object with several vtable pointers comes once."""
    word = target.arch.word
    known: dict[int, Optional[_Type]] = {}
    last = -1
    for index, value in enumerate(words):
        if value % word or not value:
            continue
        if value not in known:
            known[value] = _type_at(target, value)
        found = known[value]
        if found is None:
            continue
        start = index * word + found.offset_to_top
        if start > last:
            last = start
            yield Object(start, plain_class(found.name))


class _Type(NamedTuple):
    name: str
    offset_to_top: int  # from the vtable pointer to the beginning of the whole object: <= 0


def class_of(target: Target, vptr: int) -> Optional[str]:
    """Return the class of the object that holds the vtable pointer ``vptr``, by its run-time type information.

    Stripped programs have that information too. None if ``vptr`` does not point to a vtable, or the program was
    compiled without type information.
    """
    found = _type_at(target, vptr)
    return found.name if found is not None else None


def _type_at(target: Target, vptr: int) -> Optional[_Type]:
    """Return the type whose vtable ``vptr`` points to, or None.

    Itanium C++ ABI, 2.5.2: the offset to top and the type_info stand before the first virtual function. 2.9.5: a
    type_info is itself an object with a vtable, and its second word points to the mangled name.
    """
    word = target.arch.word
    image = target.image()
    if vptr % word or vptr < 2 * word or _file_mapping(target, vptr) is None:
        return None
    head = _words(image.read(vptr - 2 * word, 2 * word), word)
    if len(head) != 2:
        return None
    to_top = head[0] - (1 << 8 * word) if head[0] >> (8 * word - 1) else head[0]
    name = type_info_name(target, head[1]) if -(1 << 20) < to_top <= 0 else None
    return _Type(name, to_top) if name is not None else None


def type_info_name(target: Target, info: int) -> Optional[str]:
    """Return the type that the type_info at an address describes, or None where none is there."""
    word = target.arch.word
    image = target.image()
    if info % word or _file_mapping(target, info) is None:
        return None
    type_info = _words(image.read(info, 2 * word), word)
    if len(type_info) != 2 or _file_mapping(target, type_info[0]) is None:
        return None
    # On AArch64 the top bit may say that names are compared by address. A word of four bytes is all address.
    name_at = type_info[1] & ((1 << 63) - 1)
    return _type_name(image.read(name_at, _MOST_NAME)) if _file_mapping(target, name_at) else None


def _file_mapping(target: Target, address: int) -> Optional[AddressRange]:
    mapping = mapping_at(target, address)
    return mapping if mapping is not None and mapping.path is not None else None


def _type_name(data: bytes) -> Optional[str]:
    """Return the class that a name in type_info stands for: test::Foo for ``N4test3FooE``. None if it is no such name.

    The name is a mangled type without its _ZTS. A "*" stands before it if the type is local to its file.
    """
    raw, end, _ = data.partition(b"\0")
    if not end or not raw or not raw.isascii():
        return None
    mangled = raw.decode("ascii").lstrip("*")
    if not all(c.isalnum() or c in "_.$" for c in mangled):
        return None
    prefix = "typeinfo name for "
    text = _engine.demangle(f"_ZTS{mangled}")
    return text[len(prefix) :] if text.startswith(prefix) else None
