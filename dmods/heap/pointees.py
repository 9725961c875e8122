"""Describe what a value points to, and find the registers that an instruction uses."""

from __future__ import annotations

from typing import Optional

from dmods.base.class_names import plain_class
from dmods.base.dataclass import dataclass, replace
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.heap.block import FREE, OWN, Block
from dmods.heap.content import class_of
from dmods.heap.locate import AddressFinder
from dmods.process.cause import NULL_PAGE, near_mapping
from dmods.process.register_names import whole_register
from dmods.records.callers import Callers
from dmods.records.model import Stack
from dmods.target import Target

_CANONICAL_BITS = 47  # of a user address on x86-64, unless the program asks for 57-bit addresses (mmap hints)
_FREED_PATTERN = 0xDEADBEEF  # libumem's, and the auditor's
_FRESH_PATTERN = 0xBADDCAFE


@dataclass(frozen=True)
class Pointee:
    """The target of a value. ``stack`` is the stack of the block's free, or else of its allocation."""

    kind: str
    text: str
    block: Optional[int] = None
    size: Optional[int] = None
    offset: Optional[int] = None
    requested: Optional[int] = None
    stack: Optional[Stack] = None


class Operands(NamedTuple):
    """The registers that an instruction uses: those of its memory operand, and the others."""

    memory: list[str]
    plain: list[str]


# -- the registers of an instruction ----------------------------------------------------------------------------------

_X86_NAME = regex(r"%([a-z][a-z0-9]*)")
_X86_MEMORY = regex(r"\(([^)]*)\)")
_ARM_NAME = regex(r"\b([xw][0-9]{1,2}|sp)\b")
_ARM_MEMORY = regex(r"\[([^\]]*)\]")
# Instructions that use the stack pointer without naming it.
_USES_STACK = regex(r"^(push|pop|call|ret|enter|leave)")


def operands_of(target: Target, instruction: str) -> Operands:
    """Return the registers that the instruction uses, as the target names them, each once."""
    arm = target.arch.name == "aarch64"
    name, memory = (_ARM_NAME, _ARM_MEMORY) if arm else (_X86_NAME, _X86_MEMORY)
    inside = [each for part in memory.findall(instruction) for each in name.findall(part)]
    if not arm and _USES_STACK.match(instruction):
        inside.append(target.arch.sp)
    wanted = [whole_register(target, each) for each in inside]
    others = [whole_register(target, each) for each in name.findall(instruction)]
    first = list(dict.fromkeys(filter(None, wanted)))
    return Operands(first, [each for each in dict.fromkeys(filter(None, others)) if each not in first])


# -- what a value points to -------------------------------------------------------------------------------------------


def describe_pointee(finder: AddressFinder, callers: Callers, value: int) -> Pointee:
    """Return what the value points to, whatever it is."""
    target = finder.target
    if value < NULL_PAGE:
        return Pointee("null", "NULL" if value == 0 else f"NULL plus {value:#x}")
    if target.arch.name == "x86_64" and value >> _CANONICAL_BITS and value >> _CANONICAL_BITS != (1 << 17) - 1:
        return Pointee("non-canonical", f"nothing: {value:#x} is not a canonical address{_pattern(value)}")
    heap = _in_heap(finder, callers, value)
    if heap is not None:
        return heap
    places = finder.at(value)
    if places:
        return Pointee(places[0].kind, places[0].text)
    return Pointee("unmapped", f"nothing: {value:#x} is in no mapping{near_mapping(target, value)}{_pattern(value)}")


def _pattern(value: int) -> str:
    halves = {value & 0xFFFFFFFF, value >> 32}
    if _FREED_PATTERN in halves:
        return " (guards fill freed memory with 0xdeadbeef)"
    return " (guards fill fresh memory with 0xbaddcafe)" if _FRESH_PATTERN in halves else ""


def _in_heap(finder: AddressFinder, callers: Callers, value: int) -> Optional[Pointee]:
    heap = finder.heap
    if value not in heap.owned:
        return None
    block = heap.index.block_at(value)
    if block is None or block.state == FREE:
        return _freed(finder, callers, block, value) or _past_the_end(finder, callers, value)
    if block.state == OWN:
        return Pointee("block", finder.at(value)[0].text, block.address, block.size, value - block.address)
    pointee = _live(finder, callers, block, value)
    over = value - block.address - (pointee.requested if pointee.requested is not None else block.size)
    return _beyond(pointee, over) if over >= 0 else pointee


def _live(finder: AddressFinder, callers: Callers, block: Block, value: int) -> Pointee:
    record = finder.heap.records.of_block(block.address)
    size = record.requested if record is not None else block.size
    name = class_of(finder.target, finder.heap.words.at(block.address) or 0)
    offset = value - block.address
    text = f"{_offset(offset)}live block of {size} bytes" + (f" (C++ class {plain_class(name)})" if name else "")
    if record is None:
        return Pointee("block", text, block.address, block.size, offset)
    text += f", allocated by {callers.caller(record.stack).text}"
    return Pointee("block", text, block.address, block.size, offset, record.requested, record.stack)


def _freed(finder: AddressFinder, callers: Callers, block: Optional[Block], value: int) -> Optional[Pointee]:
    """Return the freed block that holds the address: as the log knows it, or as the allocator does."""
    heap = finder.heap
    last = heap.records.last_of(value)
    if last is not None and last.freed and last.address <= value < last.address + max(1, last.requested):
        offset = value - last.address
        text = f"{_offset(offset)}freed block of {last.requested} bytes, freed by {callers.caller(last.stack).text}"
        size = block.size if block is not None and block.address == last.address else None
        return Pointee("freed block", text, last.address, size, offset, last.requested, last.stack)
    if block is None:
        return None
    offset = value - block.address
    text = f"{_offset(offset)}freed block of {block.size} bytes, {finder.holding(block)}"
    return Pointee("freed block", text, block.address, block.size, offset)


def _past_the_end(finder: AddressFinder, callers: Callers, value: int) -> Optional[Pointee]:
    """Return the block that ends at the address, or at most a chunk header before it."""
    heap, word = finder.heap, finder.heap.words.size
    for back in range(1, 2 * word + 1):
        block = heap.index.block_at(value - back)
        if block is not None:
            if block.state in (FREE, OWN):
                return None
            pointee = _live(finder, callers, block, value)
            end = block.address + (pointee.requested if pointee.requested is not None else block.size)
            return _beyond(pointee, value - end)
    return None


def _beyond(pointee: Pointee, over: int) -> Pointee:
    where = "just past the end of a " if over == 0 else f"{over} bytes past the end of a "
    return replace(pointee, kind="past the end", text=where + pointee.text[pointee.text.index("live block") :])


def _offset(offset: int) -> str:
    return f"{offset:#x} bytes into a " if offset else ""
