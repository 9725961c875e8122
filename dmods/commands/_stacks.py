"""Show stacks of threads as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dmods.base.shapes import frame_value
from dmods.modules.lines import source_lines
from dmods.process.addresses import module_at
from dmods.process.source import source_cells, text_lines
from dmods.process.unwind import COMPLETE_ENDS, ENDS, Frame, Stack, describe
from dmods.report import Column, Table, Value
from dmods.target import Target

FRAMES = (
    Column("sp", "address", width=16),
    Column("pc", "address", width=16),
    Column("where"),
    Column("note"),
)


def thread_frames(
    target: Target, frames: Sequence[Frame], notes: Sequence[str] = (), registers: bool = False
) -> list[dict[str, Any]]:
    """Return the frames of a thread for a "stack" column. ``notes`` has one text for each frame, or is empty."""
    values = []
    lines = source_lines(target)
    for number, frame in enumerate(frames):
        module = module_at(target, frame.code_address)
        value = frame_value(
            frame.pc,
            describe(target, frame),
            module.name if module is not None else None,
            frame.exact,
            sp=frame.sp,
            found=frame.found_by,
            **source_cells(lines.frames_at(frame.code_address, exact=True)),
            note=notes[number] if notes else "",
            registers=frame.registers if registers else None,
        )
        values.append(value)
    return values


def thread_stack_table(
    target: Target, stack: Stack, notes: Sequence[str], name: str = "stack", *, title: str = "", sp: bool = True
) -> Table:
    """Return the stack as text: a frame a line, with its source line, and a line for each inlined function above it.

    ``notes`` has one text for each frame. ``sp`` is false for a stack that several threads share.
    """
    rows = list(_rows(target, stack.frames, notes))
    columns, rows = (FRAMES, rows) if sp else (FRAMES[1:], [row[1:] for row in rows])
    return Table(name, columns, rows, style="plain", title=title, footer=stack_end(stack), only="text")


def stack_end(stack: Stack) -> list[str]:
    """Return the line below a stack that is not complete: why there are no more frames."""
    if stack.truncated:
        return ["... (the frame limit was reached: -n N shows more)"]
    return [] if stack.end in COMPLETE_ENDS else [f"(no more frames: {ENDS[stack.end]})"]


def _rows(target: Target, frames: Sequence[Frame], notes: Sequence[str]) -> Iterator[tuple[Value, ...]]:
    lines = source_lines(target)
    for frame, note in zip(frames, notes):
        *inlined, own = text_lines(describe(target, frame), lines.frames_at(frame.code_address, exact=True))
        blank = [" " * len(hex(value)) for value in (frame.sp, frame.pc)]
        yield from ((*blank, text, "") for text in inlined)
        yield frame.sp, frame.pc, own, note
