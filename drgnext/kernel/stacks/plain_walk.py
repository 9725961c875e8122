"""The answer of a plain stack walker, for comparison.

One is drgn's own trace. The other is a walker that takes every pc for a return address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.code_names import CodeNames
from drgnext.kernel.stacks.frames import Frame, Stack
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.stacks.threads import Threads

if TYPE_CHECKING:
    from drgn import StackFrame


class PlainFrame(NamedTuple):
    """A frame of drgn's stack trace. Inlined calls have no frame of their own here."""

    pc: int
    names: tuple[str, ...]  # the inlined functions there, innermost first, and the function itself
    source: Optional[str]
    interrupted: bool


def trace(threads: Threads, task: Task) -> Optional[list[PlainFrame]]:
    """Return drgn's own stack trace of the task, or None if drgn cannot make one."""
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


def _pc(frame: StackFrame) -> int:
    """Return the frame's pc, or 0."""
    try:
        return int(frame.pc)
    except LookupError:
        return 0


def _source(frame: StackFrame) -> Optional[str]:
    """Return the frame's line of source, or None."""
    try:
        filename, line, _column = frame.source()
    except LookupError:
        return None
    return f"{filename}:{line}"


def wrong_frames(threads: Threads, stack: Stack, n: int, plain: Optional[list[PlainFrame]]) -> list[str]:
    """Return what a plain walker says wrongly about the trapped frame ``n`` and about its caller."""
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
            said.append(f"drgn names the code after the call in its caller: {wrong.names[0]} ({wrong.source})")
    return said


def past_user(stack: Stack, plain: Optional[list[PlainFrame]]) -> list[PlainFrame]:
    """Return the frames that drgn shows beyond the boundary to user space."""
    if plain is None or stack.user is None:
        return []
    at = next((n for n, frame in enumerate(plain) if frame.pc == stack.user.pc), None)
    return plain[at + 1 :] if at is not None else []


def _as_return_address(places: CodeNames, frame: Frame, step: int) -> Optional[str]:
    """Return the place before the trapped instruction, or None if its function and line are the same."""
    if places.function(frame.pc) is None or not step:
        return None
    before = frame.pc - step
    truth, other = places.lines(frame.pc), places.lines(before)
    if places.function(before) == places.function(frame.pc) and truth[:1] == other[:1]:
        return None
    return places.describe(frame.pc, before) + (f" ({other[0]})" if other else "")
