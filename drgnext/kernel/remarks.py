"""What is to be said of each frame beside its place: what trapped there, and what was inlined."""

from __future__ import annotations

from typing import Optional

from drgnext.kernel import panic
from drgnext.kernel.stacks import ENDS, GUESSES, WHOLE, Frame, Stack
from drgnext.kernel.threads import Threads
from drgnext.kernel.traps import TrapFrame


def remarks(threads: Threads, frames: list[Frame]) -> list[str]:
    """One for each frame, "" where there is nothing to say."""
    out = []
    for n, frame in enumerate(frames):
        words = []
        if frame.trap is not None:
            words.append(f"<-- {happened(threads, frame.trap)}, pt_regs at {frame.trap.address:#x}")
        if frame.found == "bad jump" and n:
            words.append(f"<-- {jumped(threads, frame, frames[n - 1].pc)}")
        elif frame.found in GUESSES:
            words.append(f"({GUESSES[frame.found]})")
        inlined = inlined_in(threads, frame)
        if inlined:
            words.append(f"(in {inlined}, inlined)")
        out.append(" ".join(words))
    return out


def happened(threads: Threads, trap: TrapFrame) -> str:
    """What stopped the code at the trap's pc, in words."""
    kind = panic.kind(threads, trap)
    if not kind:
        return "trapped"
    if kind.startswith("interrupt: "):
        return f"interrupted by {kind[len('interrupt: ') :]}"
    return f"interrupted by an {kind}" if kind in ("NMI", "FIQ") else f"trapped: {kind}"


def jumped(threads: Threads, frame: Frame, to: int) -> str:
    """How the code at a return address went to where no code is."""
    call = threads.code.call_before(frame.pc)
    if call is None:
        return f"jumped to {to:#x}"
    return f"jumped to {to:#x}: {call[1]} at {threads.places.describe(call[0])}"


def inlined_in(threads: Threads, frame: Frame) -> Optional[str]:
    """The inlined function that the frame's line belongs to, where it is not the frame's own."""
    lines = threads.places.lines(threads.places.inside(frame))
    return lines[0].function if len(lines) > 1 else None


def ending(threads: Threads, stack: Stack) -> str:
    """Why there are no more frames, in brackets, for below them."""
    if stack.user is not None:
        kind = panic.kind(threads, stack.user)
        return (
            f"(entered from user space at {stack.user.pc:#x}{': ' + kind if kind else ''}, "
            f"pt_regs at {stack.user.address:#x})"
        )
    return f"({'' if stack.end in WHOLE else 'no more frames: '}{ENDS[stack.end]})"
