"""The source lines of a frame as text and JSON show them. Every command that shows a stack uses this."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dmods.modules.lines import SourceFrame
from dmods.process.shapes import source_value


def text_lines(name: str, frames: Sequence[SourceFrame]) -> list[str]:
    """Return a frame as lines of text: its inlined functions first, then the frame itself.

    ``name`` is the frame's symbol+offset. ``frames`` are those of `SourceLines.frames_at`; without any, the name stands
    alone. Text shows the name of the source file without its folder.
    """
    inlined = [f"{frame.function or '?'} (inlined){source_text(frame)}" for frame in frames[:-1]]
    return [*inlined, f"{name}{source_text(frames[-1])}" if frames else name]


def source_text(frame: SourceFrame) -> str:
    """Return ``  [file.c:42]``, or "" where the file is not known."""
    place = source_place(frame)
    return f"  [{place}]" if place else ""


def source_place(frame: SourceFrame) -> str:
    """Return ``file.c:42``, or "" where the file is not known."""
    if not frame.file:
        return ""
    return os.path.basename(frame.file) + (f":{frame.line}" if frame.line else "")


def source_cells(frames: Sequence[SourceFrame]) -> dict[str, Any]:
    """Return the arguments "source" and "inlined" of `frame_value`."""
    places = [source_value(frame.file, frame.line) for frame in frames]
    inlined = [
        {"name": frame.function, "source": place, "called_from": call}
        for frame, place, call in zip(frames, places, places[1:])
    ]
    return {"source": places[0] if places else None, "inlined": inlined}
