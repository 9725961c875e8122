"""Describe the targets of the registers of a crash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from dmods.commands._records import stack_values
from dmods.heap.locate import quick_finder
from dmods.heap.pointees import Operands, Pointee, describe_pointee, operands_of
from dmods.process.shapes import STACK_COLUMNS
from dmods.records.callers import Callers
from dmods.report import Column, Schema, Table, Value
from dmods.target import Target

_HEAP_KINDS = ("freed block", "block", "past the end", "header", "top", "arena", "heap_info", "slack")
_STACK_KINDS = ("stack", "dead stack", "guard page")
# The kinds that have a line for a register that the instruction does not use, in the order of the lines.
_TOLD = (*_HEAP_KINDS, *_STACK_KINDS, "non-canonical")
_NOT_POINTERS = ("null", "non-canonical")  # kinds of values that are used as numbers

REGISTERS = Schema(
    "registers",
    "a value that one or more registers have",
    (
        Column("registers", "texts", hidden=True, about="their names"),
        Column("value", "address", hidden=True),
        Column("operand", "flag", hidden=True, about="whether the instruction uses one of them"),
        Column("kind", hidden=True, about="what the value points to"),
        Column("block", "address", hidden=True, null="the value points into no block, or it is not known"),
        Column("size", "bytes", hidden=True, null="the value points into no block, or it is not known"),
        Column("offset", "count", hidden=True, null="the value points into no block, or it is not known"),
        Column("requested", "bytes", hidden=True, null="it is not known"),
        Column("caller", hidden=True, null="the value points into no block, or it is not known"),
        Column("sentence"),
        *STACK_COLUMNS,
    ),
    when="where a register tells something",
)


def registers_table(target: Target, registers: Mapping[str, int], instruction: Optional[str]) -> Optional[Table]:
    """Return what the registers point to: operands of the instruction first, then others that tell something."""
    finder = quick_finder(target)
    callers = Callers(target)
    operands = operands_of(target, instruction or "")
    names = list(dict.fromkeys([*operands.memory, *operands.plain, *target.arch.registers]))
    by_value: dict[int, list[str]] = {}
    for name in names:
        if name in registers and name not in (target.arch.pc, target.arch.thread_pointer):
            by_value.setdefault(registers[name], []).append(name)
    found = [(same, value, describe_pointee(finder, callers, value)) for value, same in by_value.items()]
    rows = [
        _row(callers, same, value, pointee, _operands_among(operands, same))
        for same, value, pointee in sorted(found, key=lambda each: _rank(operands, each[0], each[2]))
        if _is_told(operands, same, pointee)
    ]
    return REGISTERS.table(rows, style="plain", title="what the registers point to") if rows else None


def _is_operand(operands: Operands, names: Sequence[str]) -> bool:
    return any(name in operands.memory or name in operands.plain for name in names)


def _operands_among(operands: Operands, names: Sequence[str]) -> list[str]:
    return [name for name in names if name in operands.memory or name in operands.plain]


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


def _row(
    callers: Callers, names: Sequence[str], value: int, pointee: Pointee, used: Sequence[str]
) -> tuple[Value, ...]:
    caller = callers.caller(pointee.stack).text if pointee.stack is not None else None
    stack = stack_values(callers, pointee.stack) if pointee.stack is not None else (None, None)
    # Most registers are 0: only those that the instruction uses are of interest.
    shown = [name for name in names if name in used] if pointee.kind == "null" else names
    return (
        list(shown),
        value,
        bool(used),
        pointee.kind,
        pointee.block,
        pointee.size,
        pointee.offset,
        pointee.requested,
        caller,
        f"{', '.join(shown)} -> {pointee.text}",
        *stack,
    )
