"""Show stacks of threads as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Optional, Union

from dmods.base.named_tuple import NamedTuple
from dmods.modules.lines import source_lines
from dmods.process.addresses import module_at
from dmods.process.recursion import recursions
from dmods.process.shapes import frame_value
from dmods.process.source import source_cells, text_lines
from dmods.process.unwind import COMPLETE_ENDS, ENDS, Frame, Stack, describe
from dmods.report import Address, Column, Table, Value
from dmods.runtimes.python.merged import Merged, merge
from dmods.runtimes.python.runtime import PythonFrame
from dmods.target import Target, Thread

_ALONE = Merged({})
_OUTERMOST = 16  # frames of a deep stack

FRAMES = (
    Column("sp", "address", width=16),
    Column("pc", "address", width=16),
    Column("where"),
    Column("note"),
)


def thread_frames(
    target: Target,
    frames: Sequence[Frame],
    notes: Sequence[str] = (),
    registers: bool = False,
    merged: Merged = _ALONE,
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
        if number in merged.frames:
            value["python"] = [python_frame_value(each) for each in merged.frames[number]]
        values.append(value)
    return values


def thread_stack_table(
    target: Target,
    stack: Stack,
    notes: Sequence[str],
    name: str = "stack",
    *,
    title: str = "",
    sp: bool = True,
    merged: Merged = _ALONE,
    most: Optional[int] = None,
) -> Table:
    """Return the stack as text: a frame a line, with its source line, and a line for each inlined function above it.

    ``notes`` has one text for each frame. ``sp`` is false for a stack that several threads share. The Python frames of
    ``merged`` stand below the C frame that runs them. With ``most``, recursions are folded, and of more frames than
    that the outermost ones are shown, too.
    """
    shown = range(len(stack.frames)) if most is None else folded(target, stack.frames, merged, most)
    rows = list(_rows(target, stack.frames, notes, merged, shown))
    columns, rows = (FRAMES, rows) if sp else (FRAMES[1:], [row[1:] for row in rows])
    footer = [*stack_end(stack), *([f"({merged.note})"] if merged.note else [])]
    return Table(name, columns, rows, style="plain", title=title, footer=footer, only="text")


def stack_end(stack: Stack) -> list[str]:
    """Return the line below a stack that is not complete: why there are no more frames."""
    if stack.truncated:
        return ["... (the frame limit was reached: -n N shows more)"]
    return [] if stack.end in COMPLETE_ENDS else [f"(no more frames: {ENDS[stack.end]})"]


class _Fold(NamedTuple):
    """A row in place of frames that are not shown. ``after`` is the frame whose line has the note, if there is one."""

    text: str
    after: Optional[int] = None


def folded(target: Target, frames: Sequence[Frame], merged: Merged, most: int) -> list[Union[int, _Fold]]:
    """Return the numbers of the frames that text shows, with folds in place of those that it does not."""
    pcs, sps = [frame.pc for frame in frames], [frame.sp for frame in frames]
    alone = {n for n, frame in enumerate(frames) if frame.trampoline or n in merged.frames}
    shown: list[Union[int, _Fold]] = []
    at = 0
    for run in recursions(pcs, sps, alone):
        end = run.first + run.period
        shown += range(at, end)
        names = (describe(target, frame).partition("+0x")[0] for frame in frames[run.first : end])
        shown.append(_Fold(f"(... {' <- '.join(names)} x {run.times}, {run.size} bytes each)", end - 1))
        at = run.first + run.period * run.times
    shown += range(at, len(frames))
    if len(shown) <= most + _OUTERMOST:
        return shown
    left = shown[most:-_OUTERMOST]
    numbers = [each for each in left if isinstance(each, int)]
    hidden = numbers[-1] - numbers[0] + 1 if numbers else 0
    return [*shown[:most], _Fold(f"... {hidden} frames (-n N shows more)"), *shown[-_OUTERMOST:]]


def _rows(
    target: Target,
    frames: Sequence[Frame],
    notes: Sequence[str],
    merged: Merged,
    shown: Sequence[Union[int, _Fold]],
) -> Iterator[tuple[Value, ...]]:
    lines = source_lines(target)
    remarks = {each.after: each.text for each in shown if isinstance(each, _Fold) and each.after is not None}
    for number in shown:
        if isinstance(number, _Fold):
            if number.after is None:
                yield None, None, number.text, ""
            continue
        frame, note = frames[number], f"{notes[number]} {remarks.get(number, '')}".strip()
        *inlined, own = text_lines(describe(target, frame), lines.frames_at(frame.code_address, exact=True))
        blank = [" " * len(hex(value)) for value in (frame.sp, frame.pc)]
        yield from ((*blank, text, "") for text in inlined)
        yield frame.sp, frame.pc, own, note
        yield from ((*blank, f"  Python: {each.where}", "") for each in merged.frames.get(number, ()))


def merged_stack(target: Target, thread: Thread, stack: Stack) -> Merged:
    """Return the Python frames that belong to the C frames of a thread."""
    return merge(target, thread, stack.frames, stack.end in COMPLETE_ENDS)


def python_frame_value(frame: PythonFrame) -> dict[str, Any]:
    """Return a Python frame as JSON shows it."""
    return {
        "frame": Address(frame.address),
        "code": Address(frame.code.address),
        "file": frame.code.file,
        "line": frame.line,
        "function": frame.code.name,
        "qualified": frame.code.qualname,
    }
