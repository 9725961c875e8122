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
from itertools import islice
from typing import Optional

from dmods._engine import elf_section
from dmods.base.class_names import split_template
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.graph.types.block_kinds import Types, find_types
from dmods.heap.block import LIVE
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.target import Target

# libstdc++ and Boost; libc++, in any of its inline namespaces.
_COUNTED = regex(r"(std|boost::detail)::_?(_\w+::)?_?[sS]p_counted_\w+<")
_SHARED = regex(r"std::_\w+::__shared_ptr_(emplace|pointer)<")
_INPLACE = ("_Sp_counted_ptr_inplace", "_Sp_counted_array", "__shared_ptr_emplace")
_CONSTANTS = (b"Sp_counted_", b"sp_counted_impl", b"__shared_ptr_emplace", b"__shared_ptr_pointer")
_LIBRARIES = ("libstdc++", "libc++")  # they have such names themselves
_SECTIONS = (".rodata", ".dynstr")
_MOST = 1 << 20  # control blocks of a type that are looked at
_ASKED = 1 << 12  # of them that are looked at first
_MANY = 2_000_000  # blocks in use: of more, a sample is looked at first
_SAMPLE = 1 << 12
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
    heap = find_heap(target)
    if sum(row[1] for row in heap.marks.engine.sizes()) > _MANY and not _sampled(heap):
        return []
    types = find_types(target)
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


def _sampled(heap: ProcessHeap) -> bool:
    """Return whether a sample of the blocks in use has a control block: to look at all of many takes seconds."""
    parts = list(heap.owned)
    step = max(1, sum(end - start for start, end in parts) // _SAMPLE)
    known: dict[int, bool] = {}
    for start, end in parts:
        for at in range(start, end, step):
            for block in heap.marks.engine.blocks([LIVE], at, 1):
                vtable = heap.words.at(block.address) or 0
                if vtable not in known:
                    known[vtable] = _counts_as(heap.target, vtable) is not None
                if known[vtable]:
                    return True
    return False


def _counts_as(target: Target, vtable: int) -> Optional[tuple[str, bool]]:
    """Return the class of a vtable if it is that of a control block, and whether it is libc++'s; else None."""
    from dmods.heap.content import class_of

    name = class_of(target, vtable) or ""
    if _SHARED.match(name):
        return name, True
    return (name, False) if _COUNTED.match(name) else None


def _control(types: Types, kind: int) -> Optional[tuple[str, bool]]:
    """Return the class of a kind that is a control block, and whether it is libc++'s; None for other kinds."""
    found = types.vtable(kind)
    return _counts_as(*found) if found is not None else None


def _expired(heap: ProcessHeap, types: Types, kind: int, name: str, is_libcxx: bool) -> Optional[Expired]:
    """Return the destroyed objects of a kind; None where none is, or where a sample of many has none."""
    counters = _libcxx if is_libcxx else _libstdcxx
    addresses = list(islice(types.addresses([kind], [LIVE]), _MOST + 1))
    whole = len(addresses) <= _MOST
    step = max(1, len(addresses) // _ASKED)
    if not any(counters(heap, address) for address in addresses[::step]):
        return None
    gone = [address for address in addresses[:_MOST] if counters(heap, address)]
    if not gone:
        return None
    blocks = (heap.block_at(address) for address in gone)
    size = sum(block.size for block in blocks if block is not None)
    inplace = split_template(name)[0].rpartition("::")[2] in _INPLACE
    examples = tuple(gone[:: max(1, len(gone) // _EXAMPLES)][:_EXAMPLES])
    return Expired(types.name(kind).text, len(gone), size, inplace, examples, whole)


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
    from dmods.graph.owners.heap_owners import find_owners

    owners = find_owners(target)
    for each in some:
        for address in each.examples:
            above = owners.above(address)
            if above is not None:
                yield owners.name_of(above[1])
