"""The stack of a goroutine, frame by frame, with the runtime's own tables (runtime/traceback.go, type unwinder).

A goroutine that stopped is unwound from where it stopped. One that runs is unwound from its thread's registers: the
thread may be on the runtime's own stack, or in a signal handler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words
from dmods.modules.golang.moduledata import go_module_at
from dmods.modules.golang.pclntab import Function, Place
from dmods.process.go_frames import Ended, GoCode, context_of, go_frames, go_machine
from dmods.process.unwind import walk
from dmods.runtimes.golang.goroutines import RUNNING, Goroutine, thread_of
from dmods.target import Target, Thread

COMPLETE = ""
LIMIT = "the frame limit was reached"
_NO_THREAD = "it runs, and its thread is not in the dump"
_NOT_GO = "the caller at {:#x} is not Go code"
_ENDS = {
    "no tables": "no table has the frame size at {:#x}",
    "unreadable": "the return address at {:#x} is not in the dump",
    "zero": "the return address is 0",
    "outside": "the frame at {:#x} is outside of the goroutine's stack",
    "changes sp": "the function at {:#x} changes the stack pointer in a way that no table describes",
}


class GoFrame(NamedTuple):
    """A frame. ``exact``: pc is where it was interrupted, not a return address. ``function``: None for C code."""

    pc: int
    sp: int
    exact: bool
    function: Optional[Function]
    places: tuple[Place, ...]  # the function's line, after those that are inlined there, innermost first

    @property
    def code_address(self) -> int:
        """Return an address in the instruction that was running: that of the call in a caller."""
        return self.pc if self.exact or (self.function and self.pc <= self.function.entry) else self.pc - 1


@dataclass
class GoStack:
    """The frames, innermost first. ``end`` says why there are no more; "" where the stack is complete."""

    frames: list[GoFrame] = field(default_factory=list)
    end: str = COMPLETE

    @property
    def truncated(self) -> bool:
        """Return whether there are more frames than were asked for."""
        return self.end == LIMIT


def stack_of(target: Target, goroutine: Goroutine, limit: int) -> GoStack:
    """Return the stack of a goroutine, at most `limit` frames of it."""
    stack = GoStack()
    if goroutine.dead:
        return stack
    if goroutine.syscall[0]:
        sp, pc = goroutine.syscall
        _saved(target, goroutine, stack, limit, GoCode(pc, sp, False))
    elif goroutine.status == RUNNING:
        thread = thread_of(target, goroutine)
        if thread is None:
            stack.end = _NO_THREAD
        else:
            _running(target, goroutine, stack, limit, thread)
    else:
        context = context_of(target, Words(target.image(), target.arch.word), goroutine.address)
        sp, pc = goroutine.sched
        _saved(target, goroutine, stack, limit, GoCode(pc, sp, False, link=context.link if context is not None else 0))
    return stack


def _running(target: Target, goroutine: Goroutine, stack: GoStack, limit: int, thread: Thread) -> None:
    """Take the frames of a thread: those of C code first, by its own tables, until Go code follows."""
    pc, sp = thread.registers.get(target.arch.pc), thread.registers.get(target.arch.sp)
    machine = go_machine(target.arch)
    if pc is None or sp is None or machine is None:
        stack.end = _NO_THREAD
        return
    first = GoCode(pc, sp, True, link=thread.registers.get(machine.link, 0))
    if pc and go_module_at(target, pc) is None:
        frames = walk(target, thread, limit).frames
        go = next((n for n, frame in enumerate(frames) if go_module_at(target, frame.code_address)), None)
        outside = frames if go is None else frames[:go]
        stack.frames = [GoFrame(frame.pc, frame.sp, frame.exact, None, ()) for frame in outside]
        if go is None:
            stack.end = "it runs code that is not Go, and no Go frame follows"
            return
        first = GoCode(frames[go].pc, frames[go].sp, frames[go].exact)
    _take(target, _codes(target, goroutine, first, saved=False), stack, limit)


def _saved(target: Target, goroutine: Goroutine, stack: GoStack, limit: int, first: GoCode) -> None:
    """Take the frames from the context on that the runtime saved."""
    low, high = goroutine.stack
    if low <= first.sp <= high:
        _take(target, _codes(target, goroutine, first, saved=True), stack, limit)
    else:
        stack.end = _ENDS["outside"].format(first.sp)


def _codes(target: Target, goroutine: Goroutine, first: GoCode, saved: bool) -> Iterator[GoCode]:
    """Yield the frames from `first` on. If a nil function was called, its caller's frame is the first."""
    words, machine = Words(target.image(), target.arch.word), go_machine(target.arch)
    if first.pc == 0 and machine is not None:
        back = first.link or words.at(first.sp) or 0
        first = GoCode(back, first.sp if machine.links else first.sp + 8, False)
    return go_frames(target, context_of(target, words, goroutine.address), first, saved)


def _take(target: Target, codes: Iterator[GoCode], stack: GoStack, limit: int) -> None:
    """Add the frames to the stack, and why they end."""
    callee = ""
    try:
        for code in codes:
            if code.function is None and code.ucontext is None:
                # The runtime's own traces end at a handler of signals, whoever called it.
                stack.end = COMPLETE if callee == "runtime.sigtramp" else _NOT_GO.format(code.pc)
                return
            if len(stack.frames) >= limit:
                stack.end = LIMIT
                return
            callee = code.function.name if code.function is not None else ""
            stack.frames.append(GoFrame(code.pc, code.sp, code.exact, code.function, _places(target, code)))
    except Ended as reason:
        key, address = reason.args
        stack.end = COMPLETE if key == "outermost" else _ENDS[key].format(address)


def _places(target: Target, code: GoCode) -> tuple[Place, ...]:
    module = go_module_at(target, code.pc)
    if module is None or code.function is None:
        return ()
    return tuple(module.table.places(code.function, code.pc, code.exact))


def is_shown(place: Place, callee: str, innermost: bool) -> bool:
    """Return whether the runtime's own trace shows a function (showfuncinfo): not one of the runtime, nor a wrapper."""
    name = place.function
    if place.wrapper and callee not in ("runtime.gopanic", "runtime.sigpanic", "runtime.panicwrap"):
        return False
    if name in ("runtime.runfinq", "runtime.runFinalizers", "runtime.runCleanups"):
        return True
    if name == "runtime.gopanic" and not innermost:
        return True
    return "." in name and (not name.startswith("runtime.") or _is_exported(name[len("runtime.") :]))


def shown_places(frames: Sequence[GoFrame]) -> Iterator[tuple[GoFrame, list[Place]]]:
    """Yield the frames with those of their places that the runtime's own trace shows, innermost first."""
    callee, innermost = "", True
    for frame in frames:
        kept = []
        for place in frame.places:
            if is_shown(place, callee, innermost):
                kept.append(place)
                innermost = False
            callee = place.function
        yield frame, kept


def _is_exported(name: str) -> bool:
    """Return whether a function of the runtime is for programs: its name, and its type's, begin with a capital."""
    receiver, _dot, own = name.rpartition(".")
    receiver = receiver.strip("(*)")
    return own[:1].isupper() and own.isascii() and (not receiver or receiver[:1].isupper())
