"""The size of the objects of a C++ class, as its deleting destructor passes it to operator delete.

A class with a virtual destructor has a deleting destructor in its vtable (Itanium C++ ABI, 2.5.2: D0). Since C++14 it
ends with `operator delete(this, sizeof(T))`. So a stripped program knows the size, too. Some compilers pass no size
(clang before 19), and a class may have no virtual destructor: then the size is not known.
"""

from __future__ import annotations

from typing import Optional

from dmods import _engine
from dmods.base.class_names import has_own_block
from dmods.base.regex import regex
from dmods.base.words import Words
from dmods.graph.types.code_branches import INSTRUCTION, behind_stub, branch_target, slot_of_stub
from dmods.graph.types.type_name import TypeName, type_name, vtable_confidence
from dmods.graph.types.vtable_blocks import Alike
from dmods.process.addresses import module_at
from dmods.process.malloc_slots import slots_named
from dmods.process.mappings import mapping_at
from dmods.target import Target

_SLOTS = 64  # virtual functions that are looked at
_MOST_CODE = 1024  # bytes of a function
_MOST_SIZE = 1 << 24
_MOST_ELEMENTS, _LEAST_ELEMENTS = 8, 2  # of an array, that are compared
_MOST_ELEMENT = 512  # bytes of an element whose size is not known
_REST = 16  # bytes that are too few for a chunk of glibc
_FEW = 4  # blocks
_DELETING = "D0Ev"  # the end of a deleting destructor's symbol (Itanium C++ ABI, 5.1.4.3)
_SIZED = ("_ZdlPvm", "_ZdlPvmSt11align_val_t")
# The second argument: %esi; w1 or x1.
_ARGUMENT = regex(r"mov[lq]? (?:\$(0x[0-9a-f]+), ?%[er]si|[wx]1, #(0x[0-9a-f]+))$")
_CALL = regex(r"(?:bnd )?(?:call|jmp|bl?)[lq]? ")
_END = regex(r"(?:bnd |rep )?ret")


def class_size(target: Target, vptr: int) -> Optional[int]:
    """Return the size of the objects whose vtable pointer is `vptr`, or None where no deleting destructor tells it."""
    known: dict[int, Optional[int]] = vars(target).setdefault("_class_sizes", {})
    if vptr not in known:
        known[vptr] = _find(target, vptr)
    return known[vptr]


def _find(target: Target, vptr: int) -> Optional[int]:
    words = Words(target.image(), target.arch.word)
    found = set()
    for slot in range(_SLOTS):
        function = words.at(vptr + slot * target.arch.word)
        mapping = mapping_at(target, function) if function else None
        if function is None or mapping is None or "x" not in mapping.flags:
            break
        symbol = target.symbol_at(function)
        named = symbol is not None and symbol.address == function
        if named and symbol is not None and not symbol.name.endswith(_DELETING):
            continue
        size = _deleted(target, function, symbol.size if named and symbol is not None and symbol.size else None)
        if size is not None and named:
            return size
        if size is not None:
            found.add(size)
    # Without symbols another virtual function may delete something else: then nothing is believed.
    return found.pop() if len(found) == 1 else None


def _deleted(target: Target, function: int, length: Optional[int]) -> Optional[int]:
    """Return the size that a function gives to its last call of operator delete, or None."""
    code = target.image().read(function, min(length or _MOST_CODE, _MOST_CODE))
    at, argument, last = 0, None, None
    while at < len(code):
        found = _engine.disassemble(target.arch.name, code[at : at + INSTRUCTION], function + at)
        if found is None:
            break
        text, size = found
        given = _ARGUMENT.match(text)
        if given is not None:
            argument = int(given.group(1) or given.group(2), 16)
        elif _CALL.match(text):
            to = branch_target(text, function + at)
            if to is not None and _is_sized_delete(target, to):
                last = argument
                if length is None and text.startswith(("jmp", "b ")):
                    break
            argument = None
        elif length is None and _END.match(text):
            break
        at += max(1, size)
    return last if last is not None and target.arch.word <= last <= _MOST_SIZE else None


def _is_sized_delete(target: Target, address: int) -> bool:
    for place in (address, behind_stub(target, address)):
        symbol = target.symbol_at(place)
        if symbol is not None and symbol.address == place and symbol.name in _SIZED:
            return True
    # A slot that nobody has called leads back into the table. The file says whose it is.
    module = module_at(target, address)
    slot = slot_of_stub(target, address) if module is not None else None
    if module is None or slot is None:
        return False
    known: dict[int, dict[int, str]] = vars(target).setdefault("_delete_slots", {})
    if module.start not in known:
        known[module.start] = slots_named(target, module, _SIZED)
    return slot in known[module.start]


def fits(size: int, usable: int) -> bool:
    """Return whether an allocator gives a block of so many usable bytes for an object of this size.

    glibc rounds up to 16 bytes, gives 24 at least, and may leave a remainder of 16 in the block. jemalloc has four
    sizes between two powers of two (engine/core/src/typed/propagate.rs has the same rule).
    """
    return size <= usable <= max(size + 31, 24, size + size // 4)


def object_name(target: Target, vptr: int, name: str, blocks: Alike, evidence: str = "vtable") -> Optional[TypeName]:
    """Return the type of blocks that begin with a vtable pointer of the class `name`; None if they only begin with one.

    They are arrays if further elements follow in all of the examples, and something else says so as well: a block that
    nobody has written may have the array that was there before.
    """
    size = class_size(target, vptr)
    words = Words(target.image(), target.arch.word)
    distance = size if size is not None else _distance(words, vptr, blocks)
    if size is None and distance is None:
        sizes = [blocks.usable[1], *(usable for usable, _count in blocks.others)]
        # A chunk of glibc may be larger than it has to be.
        return type_name(name, evidence, "likely") if max(sizes) - min(sizes) <= _REST else None
    if size is not None and any(fits(size, each) for each in blocks.usable):
        confidence = "likely"
        if evidence == "vtable":
            confidence = "proven" if has_own_block(name) else vtable_confidence(size, blocks.usable[1], words.size)
        return type_name(name, evidence, confidence) if not _is_larger(size, blocks) else None
    count = min(blocks.usable[0] // distance, _MOST_ELEMENTS) if distance else 0
    is_part = size is None and distance is not None and _are_smaller(blocks, distance)
    if count < _LEAST_ELEMENTS or is_part or not blocks.examples:
        return None
    places = [place * distance for place in range(1, count)] if distance else []
    if not all(words.at(start + place) == vptr for start in blocks.examples for place in places):
        return None
    if distance and (_are_most(blocks, distance) or _are_vectors(words, blocks, distance)):
        element = type_name(name, evidence, "likely")
        return TypeName(f"{element.text}[]", evidence, "likely", f"{name}[]")
    return None


def _are_smaller(blocks: Alike, distance: int) -> bool:
    """Return whether most single objects of the class have less room: then the elements only begin with one."""
    smaller = sum(count for usable, count in blocks.others if usable < distance)
    return smaller > sum(count for usable, count in blocks.others if fits(distance, usable))


def _are_most(blocks: Alike, distance: int) -> bool:
    """Return whether most blocks of their size are so, and no single objects in chunks that are too large."""
    if blocks.count < _FEW or 2 * blocks.count < blocks.all_count:
        return False
    # What was asked for may be so much less.
    least = blocks.usable[0] - 2 * _REST + 1
    smaller = sum(count for usable, count in blocks.others if usable == blocks.usable[1] - _REST)
    return least >= 2 * distance or smaller <= blocks.count


def _are_vectors(words: Words, blocks: Alike, distance: int) -> bool:
    """Return whether a vector has each example: its begin, the end of its elements and that of its room."""

    def has(start: int, place: int) -> bool:
        end, room = (words.at(place + words.size * i) for i in (1, 2))
        if end is None or room is None or not start < end <= room <= start + blocks.usable[1]:
            return False
        return (end - start) % distance == (room - start) % distance == 0 and 2 * (room - start) > blocks.usable[0]

    found = blocks.pointers()
    return found is not None and all(
        any(has(start, place) for place in places) for start, places in zip(blocks.examples, found)
    )


def _distance(words: Words, vptr: int, blocks: Alike) -> Optional[int]:
    """Return how far behind the first vtable pointer the next one stands in all examples, or None where none follows.

    No object has a member of its own class, so the blocks are arrays, or something else. 0: the distances differ.
    """
    within = range(words.size, min(blocks.usable[0] - words.size, _MOST_ELEMENT) + 1, words.size)
    found = [next((at for at in within if words.at(start + at) == vptr), None) for start in blocks.examples]
    if not any(found):
        return None
    return found[0] if len(set(found)) == 1 else 0


def _is_larger(size: int, blocks: Alike) -> bool:
    """Return whether too many blocks are 16 bytes larger than glibc makes them for objects of this size.

    glibc leaves a rest of 16 bytes in a chunk now and then (malloc.c, MINSIZE). If most blocks have it, then the object
    is the first member of something larger.
    """
    usual = max(24, (size + 8 + 15) // 16 * 16 - 8)
    if blocks.usable[1] != usual + _REST or blocks.count < _FEW:
        return False
    return blocks.count > sum(count for usable, count in blocks.others if usable == usual)
