"""Remarks beside the frames of a stack: the trap in a frame, and the functions inlined there."""

from __future__ import annotations

from typing import Optional

from dmods.base.regex import regex
from dmods.process import recursion
from dmods.process.recursion import Recursion
from drgnext.kernel.crash.panic import trap_kind
from drgnext.kernel.stacks.frames import ENDS, GUESSES, WHOLE, Frame, Stack
from drgnext.kernel.stacks.threads import Threads
from drgnext.kernel.stacks.traps import TrapFrame

_TARGET = regex(r"^(?:data16 )?(?:call|jmp|j[a-z]{1,3}|bl|b)q? +(0x[0-9a-f]+)$")

_MOST_CALLS = 3  # that a remark names

_IN_PLACE = {"overwritten": "found by the size of this function's frame"}


def frame_remarks(threads: Threads, frames: list[Frame]) -> list[str]:
    """Return one remark for each frame. It is "" where there is nothing to say."""
    out = []
    for n, frame in enumerate(frames):
        words = []
        if frame.trap is not None:
            words.append(f"<-- {happened(threads, frame.trap)}, pt_regs at {frame.trap.address:#x}")
        if n == 0 and frame.found == "cpu" and frame.trap is not None:
            words.append("(the functions that ran after it are not on the stack)")
        words += _doubts(threads, frame, frames[n - 1].pc if n else 0)
        if frame.found == "detour":
            words.append("<-- an optimized kprobe has replaced this instruction by a jump")
        if frame.through:
            words.append(f"(on the stack tracing has put {frame.through} in place of this return address)")
        inlined = inlined_in(threads, frame)
        if inlined:
            words.append(f"(in {inlined}, inlined)")
        out.append(" ".join(words))
    return out


def _doubts(threads: Threads, frame: Frame, inner: int) -> list[str]:
    """Return in words how a frame was found that is not certain, or whose callee did not call it as usual.

    ``inner`` is the pc of the frame inside.
    """
    words = []
    if frame.instead is not None:
        words.append(f"<-- {frame.instead:#x} is on the stack in place of the return address to here")
        words.append(f"({_IN_PLACE.get(frame.found, GUESSES['smashed return'])})")
    elif frame.found == "bad jump":
        words.append(f"<-- {jumped(threads, frame, inner)}")
    elif frame.lost:
        words.append(f"<-- {lost_call(threads, frame)} returned to {inner:#x}: the return address")
        words.append("was overwritten (this frame is the next one: that function's is lost)")
    elif frame.found == "smashed return":
        words.append(f"<-- something returned to {inner:#x}: its return address was overwritten")
        words.append(f"({GUESSES[frame.found]})")
    elif frame.found == "overwritten":
        words.append(f"<-- {returned(threads, frame.pc)} returned to {inner:#x}: its return address to here")
        words.append("was overwritten (found by the size of this function's frame)")
    elif frame.found == "left behind":
        words.append("(found on the stack: the dump's registers of this CPU are those of the trap below)")
    elif frame.found in GUESSES:
        words.append(f"({GUESSES[frame.found]})")
    return words


def recursions(frames: list[Frame]) -> list[Recursion]:
    """Return the runs of frames that repeat the same pcs, innermost first. They show how a stack overflowed."""
    trapped = {n for n, frame in enumerate(frames) if frame.trap is not None}
    return recursion.recursions([frame.pc for frame in frames], [frame.sp for frame in frames], trapped)


def repeated(threads: Threads, frames: list[Frame], run: Recursion) -> str:
    """Return the run in words: "ka_overflow x 29, 512 bytes each"."""
    names = " <- ".join(
        threads.places.describe(frame.pc, threads.places.inside(frame)).partition("+")[0]
        for frame in frames[run.first : run.first + run.period]
    )
    return f"{names} x {run.times}, {run.size} bytes each"


def happened(threads: Threads, trap: TrapFrame) -> str:
    """Return what stopped the code at the trap's pc, in words."""
    kind = trap_kind(threads, trap)
    if not kind:
        return "trapped"
    if kind.startswith("interrupt: "):
        return f"interrupted by {kind[len('interrupt: ') :]}"
    return f"interrupted by an {kind}" if kind in ("NMI", "FIQ") else f"trapped: {kind}"


def jumped(threads: Threads, frame: Frame, to: int) -> str:
    """Return how the code at a return address jumped to where no code is."""
    call = threads.code.call_before(frame.pc)
    if call is None:
        return f"jumped to {to:#x}"
    by = jumper(threads, call[1], to)
    return (
        f"jumped to {to:#x}{f' by {by}' if by else ''}: {named(threads, call[1])} at {threads.places.describe(call[0])}"
    )


def lost_call(threads: Threads, frame: Frame) -> str:
    """Return the calls of which one returned to a wrong address, in words."""
    where = threads.places.function(frame.lost[0] - 1)
    calls = [returned(threads, back).rstrip(",") for back in frame.lost[:_MOST_CALLS]]
    more = f" or one of {len(frame.lost) - len(calls)} others" if len(frame.lost) > len(calls) else ""
    return f"a call in {threads.places.describe(where.start) if where else '?'} ({'; '.join(calls)}{more})"


def returned(threads: Threads, back: int) -> str:
    """Return the function that should have returned to the address ``back``, in words."""
    call = threads.code.call_before(back)
    found = _TARGET.search(call[1]) if call is not None else None
    target = int(found[1], 16) if found is not None else 0
    function = threads.places.function(target)
    if function is None or function.name.startswith("__x86_indirect_thunk"):
        return "the function that was called here"
    return f"{threads.places.describe(target)}, or a function that it jumped to,"


def jumper(threads: Threads, call: str, to: int) -> Optional[str]:
    """Return the function that must have jumped to ``to``, in words, if the call itself did not go there.

    The call went to a function. That one jumped on (a tail call), or it called another and that one returned to ``to``.
    A retpoline's thunk stands for an indirect call (arch/x86/lib/retpoline.S).
    """
    found = _TARGET.search(call)
    target = int(found[1], 16) if found is not None else to
    function = threads.places.function(target) if target != to else None
    if function is None or function.name.startswith("__x86_indirect_thunk"):
        return None
    return f"{threads.places.describe(target)}, or a function that it jumped to"


def named(threads: Threads, instruction: str) -> str:
    """Return the instruction with the name of the function that it calls or jumps to."""
    found = _TARGET.search(instruction)
    if found is None or threads.places.function(int(found[1], 16)) is None:
        return instruction
    return f"{instruction} <{threads.places.describe(int(found[1], 16))}>"


def inlined_in(threads: Threads, frame: Frame) -> Optional[str]:
    """Return the inlined function that the frame's line belongs to, or None if the line is not in inlined code."""
    lines = threads.places.lines(threads.places.inside(frame))
    return lines[0].function if len(lines) > 1 else None


def ending(threads: Threads, stack: Stack) -> str:
    """Return why there are no more frames, in brackets, for the line below them."""
    if stack.user is not None:
        kind = trap_kind(threads, stack.user)
        return (
            f"(entered from user space at {stack.user.pc:#x}{': ' + kind if kind else ''}, "
            f"pt_regs at {stack.user.address:#x})"
        )
    return f"({'' if stack.end in WHOLE else 'no more frames: '}{ENDS[stack.end]})"
