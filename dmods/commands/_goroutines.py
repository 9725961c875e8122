"""Show stacks of goroutines as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dmods.commands._stacks import FRAMES
from dmods.modules.golang.pclntab import Place
from dmods.modules.lines import SourceFrame
from dmods.process.addresses import describe_code, module_at
from dmods.process.shapes import frame_value
from dmods.process.source import source_cells, text_lines
from dmods.report import Table, Value
from dmods.runtimes.golang.goroutines import shown
from dmods.runtimes.golang.unwind import GoFrame, GoStack, shown_places
from dmods.target import Target

ShownFrame = tuple[GoFrame, Sequence[Place]]


def frames_to_show(stack: GoStack, every: bool) -> list[ShownFrame]:
    """Return the frames of a stack with the functions to show: the runtime's own only if `every`, or if there are no
    others."""
    kept: list[ShownFrame] = []
    if not every:
        kept = [(frame, places) for frame, places in shown_places(stack.frames) if places]
    return kept or [(frame, frame.places) for frame in stack.frames]


def frame_name(target: Target, frame: GoFrame) -> str:
    """Return ``function+offset`` of a frame, as stacks show it."""
    if frame.function is None:
        return describe_code(target, frame.pc, frame.code_address)
    offset = frame.pc - frame.function.entry
    return shown(frame.function.name) + (f"+{offset:#x}" if offset else "")


def stack_table(
    target: Target, stack: GoStack, frames: Sequence[ShownFrame], name: str, *, title: str, sp: bool
) -> Table:
    """Return a stack as text: a frame a line, with a line for each function that is inlined there above it."""
    rows = list(_rows(target, frames))
    columns, rows = (FRAMES, rows) if sp else (FRAMES[1:], [row[1:] for row in rows])
    footer = [f"(no more frames: {stack.end})"] if stack.end else []
    if stack.truncated:
        footer = ["... (the frame limit was reached: -n N shows more)"]
    return Table(name, columns, rows, style="plain", title=title, footer=footer, only="text")


def _rows(target: Target, frames: Sequence[ShownFrame]) -> Iterator[tuple[Value, ...]]:
    for frame, places in frames:
        sources = _sources(places)
        blank = [" " * len(hex(value)) for value in (frame.sp, frame.pc)]
        if places and places[-1].inlined:  # the function itself is not shown
            lines = text_lines("", [*sources, SourceFrame(None, None, None)])[:-1]
            own = lines.pop()
        else:
            *lines, own = text_lines(frame_name(target, frame), sources)
        yield from ((*blank, text, "") for text in lines)
        yield frame.sp, frame.pc, own, ""


def stack_values(target: Target, frames: Sequence[ShownFrame]) -> list[dict[str, Any]]:
    """Return the frames for a "stack" column."""
    values = []
    for frame, places in frames:
        module = module_at(target, frame.code_address)
        name = frame_name(target, frame)
        values.append(
            frame_value(
                frame.pc,
                name,
                module.name if module is not None else None,
                frame.exact,
                sp=frame.sp,
                **source_cells(_sources(places)),
            )
        )
    return values


def _sources(places: Sequence[Place]) -> list[SourceFrame]:
    return [SourceFrame(shown(place.function), place.file, place.line) for place in places]
