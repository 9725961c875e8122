"""What a plain walker says of a stack, beside the truth: drgn's own trace, and the habit of taking every pc for a
return address."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from drgnext.kernel.places import Places
from drgnext.kernel.stacks import Frame, Stack
from drgnext.kernel.tasks import Task
from drgnext.kernel.threads import Threads


class PlainFrame(NamedTuple):
    """A frame of drgn's stack trace that is none of an inlined call."""

    pc: int
    names: tuple[str, ...]  # the inlined functions there, innermost first, and the function itself
    source: Optional[str]
    interrupted: bool


def trace(threads: Threads, task: Task) -> Optional[list[PlainFrame]]:
    """drgn's own. None where it cannot."""
    from drgn import FaultError

    try:
        found = list(threads.prog.stack_trace(threads.task_object(task)))
    except (FaultError, LookupError, ValueError):
        return None
    frames: list[PlainFrame] = []
    names: list[str] = []
    source: Optional[str] = None
    for frame in found:
        if not names:
            source = _source(frame)
        names.append(frame.name)
        if not frame.is_inline:
            frames.append(PlainFrame(_pc(frame), tuple(names), source, frame.interrupted))
            names, source = [], None
    return frames


def _pc(frame: Any) -> int:
    try:
        return int(frame.pc)
    except LookupError:
        return 0


def _source(frame: Any) -> Optional[str]:
    try:
        filename, line, _column = frame.source()
    except LookupError:
        return None
    return f"{filename}:{line}"


def lies(threads: Threads, stack: Stack, n: int, plain: Optional[list[PlainFrame]]) -> list[str]:
    """What a plain walker would have said wrongly of frame ``n``, one that trapped, and of the one that it came
    from."""
    frame = stack.frames[n]
    places = threads.places
    said = []
    naive = _as_return_address(places, frame, threads.machine.code_step)
    if naive:
        said.append(f"pc taken for a return address: {naive}")
    if plain is None:
        return said
    shown = [one for one in plain if one.pc == frame.pc]
    if not shown:
        said.append("drgn does not show it")
    elif not shown[0].interrupted:
        said.append(f"drgn takes it for a call, in {shown[0].names[0]} ({shown[0].source})")
    caller = stack.frames[n + 1] if n + 1 < len(stack.frames) else None
    if caller is not None and not caller.exact:
        wrong = next((one for one in plain if one.pc == caller.pc and one.interrupted), None)
        if wrong is not None:
            said.append(f"drgn says of its caller what comes after the call: {wrong.names[0]} ({wrong.source})")
    return said


def past_user(stack: Stack, plain: Optional[list[PlainFrame]]) -> list[PlainFrame]:
    """The frames that drgn shows beyond the boundary to user space."""
    if plain is None or stack.user is None:
        return []
    at = next((n for n, frame in enumerate(plain) if frame.pc == stack.user.pc), None)
    return plain[at + 1 :] if at is not None else []


def _as_return_address(places: Places, frame: Frame, step: int) -> Optional[str]:
    """What stands before the trapped instruction, where that is another function or line."""
    if places.function(frame.pc) is None or not step:
        return None
    before = frame.pc - step
    truth, other = places.lines(frame.pc), places.lines(before)
    if places.function(before) == places.function(frame.pc) and truth[:1] == other[:1]:
        return None
    return places.describe(frame.pc, before) + (f" ({other[0]})" if other else "")
