"""Describe the targets of the registers of a crash."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

from dmods.base.shapes import STACK_COLUMNS
from dmods.commands._records import stack_values
from dmods.heap.block import FREE, OWN, Block
from dmods.heap.content import class_of
from dmods.heap.locate import AddressFinder, address_finder
from dmods.process.cause import NULL_PAGE, near_mapping
from dmods.records.callers import Callers
from dmods.records.model import Stack
from dmods.report import Column, Table, Value
from dmods.target import Target

_CANONICAL_BITS = 47  # of a user address on x86-64, unless the program asks for 57-bit addresses (mmap hints)
_HEAP_KINDS = ("freed block", "block", "past the end", "header", "top", "arena", "heap_info", "slack")
_STACK_KINDS = ("stack", "dead stack", "guard page")
# The kinds that have a line for a register that the instruction does not use, in the order of the lines.
_TOLD = (*_HEAP_KINDS, *_STACK_KINDS, "non-canonical")
_NOT_POINTERS = ("null", "non-canonical")  # kinds of values that are used as numbers
_FREED_PATTERN = 0xDEADBEEF  # libumem's, and the auditor's
_FRESH_PATTERN = 0xBADDCAFE

REGISTERS = (
    Column("registers", hidden=True),
    Column("value", "address", hidden=True),
    Column("operand", hidden=True),
    Column("kind", hidden=True),
    Column("block", "address", hidden=True),
    Column("size", "bytes", hidden=True),
    Column("offset", "count", hidden=True),
    Column("requested", "bytes", hidden=True),
    Column("caller", hidden=True),
    Column("sentence"),
    *STACK_COLUMNS,
)


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


def registers_table(target: Target, registers: Mapping[str, int], instruction: Optional[str]) -> Optional[Table]:
    """Return what the registers point to: operands of the instruction first, then others that tell something."""
    finder = address_finder(target)
    callers = Callers(target)
    operands = operands_of(target, instruction or "")
    names = list(dict.fromkeys([*operands.memory, *operands.plain, *target.arch.registers]))
    by_value: dict[int, list[str]] = {}
    for name in names:
        if name in registers and name not in (target.arch.pc, target.arch.thread_pointer):
            by_value.setdefault(registers[name], []).append(name)
    found = [(same, value, describe_pointee(finder, callers, value)) for value, same in by_value.items()]
    rows = [
        _row(callers, same, value, pointee, _is_operand(operands, same))
        for same, value, pointee in sorted(found, key=lambda each: _rank(operands, each[0], each[2]))
        if _is_told(operands, same, pointee)
    ]
    return Table("registers", REGISTERS, rows, style="plain", title="what the registers point to") if rows else None


def _is_operand(operands: Operands, names: Sequence[str]) -> bool:
    return any(name in operands.memory or name in operands.plain for name in names)


def _is_told(operands: Operands, names: Sequence[str], pointee: Pointee) -> bool:
    if any(name in operands.memory for name in names):
        return True
    if any(name in operands.plain for name in names):
        return pointee.kind not in (*_NOT_POINTERS, "unmapped")
    return pointee.kind in _TOLD


def _rank(operands: Operands, names: Sequence[str], pointee: Pointee) -> int:
    """Return the place of a line: memory operands, other operands, then others by kind."""
    if any(name in operands.memory for name in names):
        return -2
    if _is_operand(operands, names):
        return -1
    return _TOLD.index(pointee.kind) if pointee.kind in _TOLD else len(_TOLD)


def _row(callers: Callers, names: Sequence[str], value: int, pointee: Pointee, operand: bool) -> tuple[Value, ...]:
    caller = callers.caller(pointee.stack).text if pointee.stack is not None else None
    stack = stack_values(callers, pointee.stack) if pointee.stack is not None else (None, None)
    return (
        list(names),
        value,
        operand,
        pointee.kind,
        pointee.block,
        pointee.size,
        pointee.offset,
        pointee.requested,
        caller,
        f"{', '.join(names)} -> {pointee.text}",
        *stack,
    )


# -- the registers of an instruction ----------------------------------------------------------------------------------

_X86_NAME = re.compile(r"%([a-z][a-z0-9]*)")
_X86_MEMORY = re.compile(r"\(([^)]*)\)")
_ARM_NAME = re.compile(r"\b([xw][0-9]{1,2}|sp)\b")
_ARM_MEMORY = re.compile(r"\[([^\]]*)\]")
# Instructions that use the stack pointer without naming it.
_USES_STACK = re.compile(r"^(push|pop|call|ret|enter|leave)")
_LOW_BYTES = {"sil": "si", "dil": "di", "bpl": "bp", "spl": "sp"}


def operands_of(target: Target, instruction: str) -> Operands:
    """Return the registers that the instruction uses, as the target names them, each once."""
    arm = target.arch.name == "aarch64"
    name, memory = (_ARM_NAME, _ARM_MEMORY) if arm else (_X86_NAME, _X86_MEMORY)
    inside = [each for part in memory.findall(instruction) for each in name.findall(part)]
    if not arm and _USES_STACK.match(instruction):
        inside.append(target.arch.sp)
    wanted = [_whole_register(target, each) for each in inside]
    others = [_whole_register(target, each) for each in name.findall(instruction)]
    first = list(dict.fromkeys(filter(None, wanted)))
    return Operands(first, [each for each in dict.fromkeys(filter(None, others)) if each not in first])


def _whole_register(target: Target, name: str) -> Optional[str]:
    """Return the register that ``name`` is a part of: rax for eax, ax and al. None if the target has no such one."""
    known = target.arch.registers
    if name in known:
        return name
    if target.arch.name == "aarch64":
        whole = f"x{name[1:]}"
        return whole if whole in known else None
    numbered = re.fullmatch(r"(r[0-9]+)[dwb]", name)
    if numbered:
        return numbered[1] if numbered[1] in known else None
    short = _LOW_BYTES.get(name, name)
    if re.fullmatch(r"[abcd][lh]", short):
        short = f"{short[0]}x"
    candidates = (f"r{short}", f"e{short}", f"r{short[1:]}")
    return next((each for each in candidates if each in known), None)


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
    block = heap.block_at(value)
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
    text = f"{_offset(offset)}live block of {size} bytes" + (f" (C++ class {name})" if name else "")
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
    text = f"{_offset(offset)}freed block of {block.size} bytes, {finder.free_lists.holding(block)}"
    return Pointee("freed block", text, block.address, block.size, offset)


def _past_the_end(finder: AddressFinder, callers: Callers, value: int) -> Optional[Pointee]:
    """Return the block that ends at the address, or at most a chunk header before it."""
    heap, word = finder.heap, finder.heap.words.size
    for back in range(1, 2 * word + 1):
        block = heap.block_at(value - back)
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
