"""Objects of std::shared_ptr that are destroyed while weak_ptrs keep their control blocks.

A control block begins with a vtable pointer and two counters. Its class is known by run-time type information or the
symbol of its vtable, so stripped programs have it, too. std::make_shared() puts the object into the control block:
its memory stays with it.

* libstdc++ (bits/shared_ptr_base.h, _Sp_counted_base) and Boost (smart_ptr/detail/sp_counted_base): int use_count, int
  weak_count. use_count is 0 once the object is destroyed; each weak_ptr counts 1 in weak_count.
* libc++ (__memory/shared_count.h): long __shared_owners_, long __shared_weak_owners_. Both are less by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods._engine import elf_section
from dmods.base.class_names import split_template
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.graph.types import Types, find_types
from dmods.heap.block import LIVE
from dmods.heap.process_heap import ProcessHeap, find_heap
from dmods.target import Target

# libstdc++ and Boost; libc++, in any of its inline namespaces.
_COUNTED = regex(r"(std|boost::detail)::_?(_\w+::)?_?[sS]p_counted_\w+<")
_SHARED = regex(r"std::_\w+::__shared_ptr_(emplace|pointer)<")
_INPLACE = ("_Sp_counted_ptr_inplace", "_Sp_counted_array", "__shared_ptr_emplace")
_CONSTANTS = (b"Sp_counted_", b"sp_counted_impl", b"__shared_ptr_emplace", b"__shared_ptr_pointer")
_LIBRARIES = ("libstdc++", "libc++")  # they have such names themselves
_SECTIONS = (".rodata", ".dynstr")
_MOST = 1 << 20  # control blocks of a type that are looked at
_MOST_WEAK = 1 << 30
_EXAMPLES = 16


class Expired(NamedTuple):
    """Control blocks of one type whose objects are destroyed.

    ``bytes`` are those of the blocks. ``inplace``: the objects' own memory is in them. ``complete`` is false where more
    blocks were not looked at.
    """

    name: str
    objects: int
    bytes: int
    inplace: bool
    examples: tuple[int, ...]
    complete: bool = True


def find_expired(target: Target) -> list[Expired]:
    """Return the destroyed objects by type, the most bytes first."""
    if not _may_have(target):
        return []
    heap, types = find_heap(target), find_types(target)
    heap.leaks()
    found: dict[str, Expired] = {}
    for kind in range(len(types)):
        control = _control(types, kind)
        if control is None:
            continue
        one = _expired(heap, types, kind, *control)
        if one is not None:
            before = found.get(one.name)
            found[one.name] = _joined(before, one) if before is not None else one
    return sorted(found.values(), key=lambda each: (-each.bytes, each.name))


def _may_have(target: Target) -> bool:
    """Return whether the program or one of its libraries has names of control blocks, or is not here."""
    for module in target.modules():
        if module.name.startswith(_LIBRARIES) or module.path == "[vdso]":
            continue
        if module.file is None:
            return True
        data = [elf_section(module.file, name) or b"" for name in _SECTIONS]
        if any(constant in each for each in data for constant in _CONSTANTS):
            return True
    return False


def _control(types: Types, kind: int) -> Optional[tuple[str, bool]]:
    """Return the class of a kind that is a control block, and whether it is libc++'s; None for other kinds."""
    from dmods.heap.content import class_of

    found = types.vtable(kind)
    if found is None:
        return None
    name = class_of(*found) or ""
    if _SHARED.match(name):
        return name, True
    return (name, False) if _COUNTED.match(name) else None


def _expired(heap: ProcessHeap, types: Types, kind: int, name: str, is_libcxx: bool) -> Optional[Expired]:
    counters = _libcxx if is_libcxx else _libstdcxx
    count, size, looked = 0, 0, 0
    examples: list[int] = []
    for address in types.addresses([kind], [LIVE]):
        looked += 1
        if looked > _MOST:
            break
        if counters(heap, address):
            block = heap.block_at(address)
            count += 1
            size += block.size if block is not None else 0
            if len(examples) < _EXAMPLES or count % _EXAMPLES == 0:
                examples = [*examples[-_EXAMPLES + 1 :], address]
    if not count:
        return None
    inplace = split_template(name)[0].rpartition("::")[2] in _INPLACE
    shown = types.name(kind).text
    return Expired(shown, count, size, inplace, tuple(examples), looked <= _MOST)


def _libstdcxx(heap: ProcessHeap, address: int) -> bool:
    data = heap.words.image.read(address + heap.words.size, 8)
    if len(data) < 8:
        return False
    used, weak = struct.unpack("<ii", data)
    return bool(used == 0 and 0 < weak < _MOST_WEAK)


def _libcxx(heap: ProcessHeap, address: int) -> bool:
    values: Sequence[int] = heap.words.many(address + heap.words.size, 2) or ()
    return len(values) == 2 and values[0] == heap.words.mask and values[1] < _MOST_WEAK


def _joined(one: Expired, other: Expired) -> Expired:
    examples = (*one.examples, *other.examples)[:_EXAMPLES]
    complete = one.complete and other.complete
    return Expired(one.name, one.objects + other.objects, one.bytes + other.bytes, one.inplace, examples, complete)


def holders_of(target: Target, some: Sequence[Expired]) -> Iterator[str]:
    """Yield the names of the roots that hold the examples: they lead to the weak_ptrs. Each comes once for a block."""
    from dmods.graph.owners import find_owners

    owners = find_owners(target)
    for each in some:
        for address in each.examples:
            above = owners.above(address)
            if above is not None:
                yield owners.name_of(above[1])
