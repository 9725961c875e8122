"""Stacks of tasks as JSON shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, TypeVar

from dmods.command import Argument
from dmods.process.shapes import frame_value, gap_value, source_value
from dmods.report import Address, Value
from drgnext.kernel.crash.remarks import ending, recursions, repeated
from drgnext.kernel.stacks.code_names import Line
from drgnext.kernel.stacks.frames import Frame, Gap, Stack
from drgnext.kernel.stacks.threads import Threads

Row = TypeVar("Row")

TASK = Argument("task", metavar="TASK", nargs="?", help="address, pid or name (default: the task that panicked)")


def with_gaps(stack: Stack, rows: Sequence[Row], gap_rows: Callable[[Gap], Row]) -> list[Row]:
    """Return the rows of a stack's frames, and between them a row for each place where frames are missing."""
    out: list[Row] = []
    for index in range(len(rows) + 1):
        gap = stack.gap_before(index)
        if gap is not None:
            out.append(gap_rows(gap))
        out += rows[index : index + 1]
    return out


def gap_text(gap: Gap) -> str:
    """Return what stands in a table where frames are missing."""
    return f"... {gap}"


def gap_notes(stack: Stack) -> list[str]:
    """Return a note for a command that shows parts of a stack that was cut, or []."""
    return [f"the stack is not whole: {gap}" for gap in stack.gaps]


def task_frames(threads: Threads, stack: Stack, notes: Sequence[str], registers: bool = False) -> list[dict[str, Any]]:
    """Return the frames of a task for a "stack" column. ``notes`` has one text for each frame."""
    frames = [_frame(threads, frame, note, registers) for frame, note in zip(stack.frames, notes)]
    return with_gaps(stack, frames, lambda gap: gap_value(gap.pc, gap_text(gap)))


def fold(
    threads: Threads, stack: Stack, rows: Sequence[tuple[Value, ...]], gap_rows: Callable[[Gap], tuple[Value, ...]]
) -> list[tuple[Value, ...]]:
    """Return the rows of a stack in text, with rows for its gaps, and each recursion folded.

    The last cell of a row is its note.
    """
    kept: list[Optional[tuple[Value, ...]]] = list(rows)
    for run in recursions(stack.frames):
        end = run.first + run.period
        *cells, note = rows[end - 1]
        kept[end - 1] = (*cells, f"{note} (... {repeated(threads, stack.frames, run)})".strip())
        folded = run.period * (run.times - 1)
        kept[end : end + folded] = [None] * folded
    return [row for row in with_gaps(stack, kept, gap_rows) if row is not None]


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
