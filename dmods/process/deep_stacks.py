"""Unwind a stack of any depth: a recursion until the stack is full makes half a million frames."""

from __future__ import annotations

from dmods.base.dataclass import replace
from dmods.modules.golang.moduledata import go_modules
from dmods.process.unwind import FRAME_LIMIT, Frame, Stack, walk
from dmods.target import Target, Thread

_DEEPEST = 2_000_000  # frames
_PART = 20_000  # frames that are unwound at once
_DEEPEST_GO = 20_000
_NOTHING: dict[str, int] = {}


def walk_whole(target: Target, thread: Thread) -> Stack:
    """Return the thread's stack up to its outermost frame. Only the innermost 256 frames have their registers.

    It is unwound in parts, since the registers take a kilobyte a frame. A part begins with the last frame of the part
    before it.
    """
    if go_modules(target):
        return walk(target, thread, _DEEPEST_GO)
    part = walk(target, thread, _PART)
    frames, last = part.frames[:FRAME_LIMIT], part.frames[-1:]
    frames += map(_without_registers, part.frames[FRAME_LIMIT:])
    while part.truncated and last and len(frames) < _DEEPEST:
        part = walk(target, replace(thread, registers=dict(last[0].registers)), _PART)
        last = part.frames[-1:]
        if len(part.frames) < 2 or last[0].sp <= frames[-1].sp:
            break
        frames += map(_without_registers, part.frames[1:])
    return Stack(frames, part.end)


def _without_registers(frame: Frame) -> Frame:
    return Frame(
        frame.pc, frame.sp, frame.found_by, frame.exact, _NOTHING, frame.trampoline, frame.ucontext, frame.siginfo
    )
