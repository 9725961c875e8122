"""The frames of a thread, from its registers and memory alone.

The engine unwinds. This file says what its answers mean, and finds the frame that trapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Optional

from dmods._engine import Unwinder
from dmods.base.cached import cached
from dmods.base.dataclass import dataclass, replace
from dmods.base.named_tuple import NamedTuple
from dmods.errors import FaultError
from dmods.modules.golang.moduledata import go_module_at, go_modules
from dmods.process import signals
from dmods.process.addresses import describe_code
from dmods.process.go_frames import Ended, GoCode, GoMachine, go_frames, go_machine, thread_context
from dmods.target import Signal, Target, Thread

FRAME_LIMIT = 256
# The budget for all threads together: 30,000 threads of 60 frames each. In a crafted core all threads may share one
# deep stack.
MAX_TOTAL_FRAMES = 2_000_000

# What to say of a frame that is only likely (see engine/core/src/unwind).
_GUESSES = {
    "frame pointer": "guess: by the frame pointer, no unwind tables here",
    "bad jump": "guess: the return address of a jump to where no code is",
    "leaf": "guess: no unwind tables here, but the call at the top of the stack leads to this code",
    "scan": "guess: a signal frame found by looking for one, after unwinding stopped",
}

ENDS = {
    "outermost": "the outermost frame",
    "zero": "the return address is 0",
    "no tables": "no unwind tables for this pc, and no frame pointer chain",
    "not code": "this pc is in no executable mapping",
    "unreadable": "the dump lacks memory that the unwind tables refer to",
    "not increasing": "the caller's frame would be below this one",
    "limit": "the frame limit was reached",
    "outside": "the caller's frame would be outside of the goroutine's stack",
    "changes sp": "this function changes the stack pointer in a way that no table describes",
}

# The ends at which no frame is missing.
COMPLETE_ENDS = frozenset({"outermost", "zero"})


@dataclass(frozen=True)
class Frame:
    """A function that was running.

    Where ``exact``, ``pc`` is the next instruction: in the innermost frame, and in a frame that a signal interrupted.
    Otherwise it is a return address, and the call is the instruction before it. ``sp`` is the stack pointer at ``pc``.
    In a caller's frame it is the canonical frame address (CFA) of the callee. ``registers`` are those that are known.

    ``found_by`` says where the registers come from. Certain: "thread" (the thread's own), "cfi" (unwind tables),
    "signal" (the kernel saved them). A guess: "frame pointer"; "leaf" (the caller of code without unwind tables that
    was just called); "bad jump" (the caller of a jump to where no code is); "scan" (a signal frame that unwinding did
    not reach).
    """

    pc: int
    sp: int
    found_by: str
    exact: bool
    registers: Mapping[str, int]
    trampoline: bool = False  # the code that a signal handler returns to: the next frame is what the signal interrupted
    ucontext: Optional[int] = None  # of a trampoline: where the kernel saved the registers
    siginfo: Optional[int] = None  # ... and the siginfo_t
    saved: Sequence[tuple[str, int]] = ()  # (register, address) of the next frame's registers that this one saved

    @property
    def code_address(self) -> int:
        """Return an address inside the instruction, for looking up the symbol and the source line.

        The return address of a call that does not return may belong to the next function. A trampoline was never
        called: its own address is looked up.
        """
        return self.pc if self.exact or self.trampoline else self.pc - 1

    @property
    def guess(self) -> Optional[str]:
        """Return why this frame is only likely; None if it is certain."""
        return _GUESSES.get(self.found_by)

    @property
    def interrupted(self) -> bool:
        """Return whether a signal stopped the thread at exactly ``pc``."""
        return self.found_by == "signal"


class Stack(NamedTuple):
    """The frames, innermost first, and why there are no more: ``end`` is a key of ENDS."""

    frames: list[Frame]
    end: str

    @property
    def truncated(self) -> bool:
        """Return whether the frame limit cut the stack."""
        return self.end == "limit"


def walk(target: Target, thread: Thread, limit: int = FRAME_LIMIT) -> Stack:
    """Return the thread's stack, at most `limit` frames. It ends where memory is not in the dump."""
    stack = _engines(target, thread.registers, limit)
    machine = go_machine(target.arch)
    return _with_go(target, machine, thread, stack, limit) if machine is not None and go_modules(target) else stack


def _engines(target: Target, registers: Mapping[str, int], limit: int) -> Stack:
    """Return the engine's frames from these registers on."""
    frames, end = _unwinder(target).unwind(dict(registers), limit)
    return Stack(
        [
            Frame(pc, sp, found_by, exact, registers, trampoline, ucontext, siginfo, saved)
            for pc, sp, found_by, exact, trampoline, ucontext, siginfo, registers, saved in frames
        ],
        end,
    )


def _with_go(target: Target, machine: GoMachine, thread: Thread, stack: Stack, limit: int) -> Stack:
    """Return the stack with frames by Go's own table wherever it has Go code. The engine knows the others."""
    context = thread_context(target, thread.registers)
    known = {(frame.pc, frame.sp): place for place, frame in enumerate(stack.frames)}
    frames: list[Frame] = []
    rest = stack
    while True:
        number = next((n for n, one in enumerate(rest.frames) if go_module_at(target, one.code_address)), None)
        frames += rest.frames[:number]
        if number is None or len(frames) >= limit:
            return Stack(frames[:limit], rest.end if number is None and len(frames) <= limit else "limit")
        first = rest.frames[number]
        link = first.registers.get(machine.link, 0) if first.exact else 0
        codes = go_frames(target, context, GoCode(first.pc, first.sp, first.exact, link=link))
        end, last = _add_go(target, codes, first, frames, limit)
        if last is None:
            return Stack(frames, end)
        place = known.get((last.pc, last.sp))
        if place is not None:
            rest = Stack(stack.frames[place:], stack.end)
        else:
            other = _of_go(target, last)
            rest = _engines(target, other.registers, max(1, limit - len(frames) + 1))
            rest.frames[:1] = [replace(one, found_by=other.found_by, exact=other.exact) for one in rest.frames[:1]]


def _add_go(
    target: Target, codes: Iterator[GoCode], first: Frame, frames: list[Frame], limit: int
) -> tuple[str, Optional[GoCode]]:
    """Add frames of Go code to `frames`. Return why they end, and the frame after them if it is other code."""
    begins = len(frames)
    try:
        for code in codes:
            if len(frames) >= limit:
                return "limit", None
            if len(frames) > begins and code.ucontext is None and go_module_at(target, code.pc) is None:
                return "", code
            frames.append(first if len(frames) == begins else _of_go(target, code))
    except Ended as reason:
        return str(reason.args[0]), None
    return "no tables", None


def _of_go(target: Target, code: GoCode) -> Frame:
    registers = code.saved or {target.arch.pc: code.pc, target.arch.sp: code.sp}
    if code.ucontext is not None:
        return Frame(code.pc, code.sp, "cfi", False, registers, True, code.ucontext, code.siginfo)
    return Frame(code.pc, code.sp, "signal" if code.saved else "cfi", code.exact, registers)


def unwind(target: Target, thread: Thread, limit: int = FRAME_LIMIT) -> list[Frame]:
    """Return the thread's frames, innermost first."""
    return walk(target, thread, limit).frames


class ManyThreads:
    """Unwinds one thread after the other, within a budget of MAX_TOTAL_FRAMES frames.

    Once the budget is spent, only the innermost frame of each thread is found. ``missed`` counts those threads.
    """

    def __init__(self, target: Target, limit: int = FRAME_LIMIT) -> None:
        self.missed = 0
        self._target, self._limit, self._frames_left = target, limit, MAX_TOTAL_FRAMES

    @property
    def out_of_budget(self) -> bool:
        """Return whether the budget is spent."""
        return self._frames_left <= 0

    def walk(self, thread: Thread) -> Stack:
        """Return the thread's stack."""
        self.missed += self.out_of_budget
        stack = walk(self._target, thread, min(self._limit, 1) if self.out_of_budget else self._limit)
        self._frames_left -= len(stack.frames) + 1
        return stack

    def unwind(self, thread: Thread) -> list[Frame]:
        """Return the thread's frames, innermost first."""
        return self.walk(thread).frames


@cached
def _unwinder(target: Target) -> Unwinder:
    modules = [(m.start, m.end, m.bias % (1 << 64), m.file) for m in target.modules()]
    code = [(m.start, m.end) for m in target.mappings() if "x" in m.flags]
    return Unwinder(target.image(), target.arch.name, modules, code)


def function_at(target: Target, pc: int) -> Optional[tuple[int, int]]:
    """Return the code with ``pc`` that has one entry in the unwind tables, (first byte, end).

    It is a function, or the part of one that lies together. None where no entry describes it.
    """
    return _unwinder(target).function(pc)


def describe(target: Target, frame: Frame) -> str:
    """Return ``symbol+offset`` of the frame's pc. The module stands before a backquote, unless it is the program."""
    return describe_code(target, frame.pc, frame.code_address)


def signal_of(target: Target, frame: Frame) -> Optional[Signal]:
    """Return the signal whose handler returns to this frame. None unless it is a trampoline with a siginfo_t that is in
    the dump."""
    if frame.siginfo is None:
        return None
    try:
        return signals.parse(target.read(frame.siginfo, signals.SIGINFO_SIZE), target.arch.word)
    except FaultError:
        return None


class Trap(NamedTuple):
    """A frame that a signal interrupted, and the signal if the dump holds it."""

    frame: Frame
    signal: Optional[Signal]


def traps(target: Target, frames: Iterable[Frame]) -> list[Trap]:
    """Return every frame that a signal interrupted, innermost first."""
    trapped = []
    callee: Optional[Frame] = None
    for frame in frames:
        if callee is not None and callee.trampoline and frame.interrupted:
            trapped.append(Trap(frame, signal_of(target, callee)))
        callee = frame
    return trapped


def original_trap(target: Target, frames: Iterable[Frame]) -> Optional[Trap]:
    """Return the oldest fault on the stack: later ones happened while it was handled.

    Without a fault (signals were only sent), return the innermost interrupted frame. None: there is no signal frame.
    """
    trapped = traps(target, frames)
    faults = [trap for trap in trapped if trap.signal is not None and signals.is_fault(trap.signal)]
    return faults[-1] if faults else (trapped[0] if trapped else None)
