"""Stacks of tasks as JSON shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from dmods.base.shapes import frame_value, source_value
from dmods.report import Address, Value
from drgnext.kernel.crash.remarks import ending, recursions, repeated
from drgnext.kernel.stacks.code_names import Line
from drgnext.kernel.stacks.frames import Frame, Stack
from drgnext.kernel.stacks.threads import Threads


def task_frames(threads: Threads, stack: Stack, notes: Sequence[str], registers: bool = False) -> list[dict[str, Any]]:
    """Return the frames of a task for a "stack" column. ``notes`` has one text for each frame."""
    return [_frame(threads, frame, note, registers) for frame, note in zip(stack.frames, notes)]


def fold(threads: Threads, frames: list[Frame], rows: list[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """Return the rows of a stack in text with each recursion folded. The last cell of a row is its note."""
    out: list[tuple[Value, ...]] = []
    at = 0
    for run in recursions(frames):
        end = run.first + run.period
        out += rows[at:end]
        *cells, note = out[-1]
        more = f"(... {repeated(threads, frames, run)})"
        out[-1] = (*cells, f"{note} {more}".strip())
        at = run.first + run.period * run.times
    return out + rows[at:]


def stack_end(threads: Threads, stack: Stack) -> str:
    """Return the line below a stack: why there are no more frames."""
    if stack.end == "limit":
        return "... (the frame limit was reached: -n N shows more)"
    return ending(threads, stack)


def _frame(threads: Threads, frame: Frame, note: str, registers: bool) -> dict[str, Any]:
    """Return one frame as the schema of reports has it."""
    places = threads.places
    at = places.inside(frame)
    function, lines = places.function(at), places.lines(at)
    inlined = [
        {"name": line.function, "source": _source(line), "called_from": _source(call)}
        for line, call in zip(lines, lines[1:])
    ]
    value = frame_value(
        frame.pc,
        places.where(frame),
        function.module or "vmlinux" if function is not None else None,
        frame.exact,
        sp=frame.sp,
        found=frame.found,
        source=_source(lines[0]) if lines else None,
        inlined=inlined,
        note=note,
        registers=frame.registers if registers else None,
    )
    if frame.trap is not None:
        value["pt_regs"] = Address(frame.trap.address)
    return value


def _source(line: Line) -> Optional[dict[str, Any]]:
    """Return a line of source as the schema of reports has it."""
    return source_value(line.path, line.line)
