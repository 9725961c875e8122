"""A thread's frames, from its registers and memory alone.

The unwinding itself is the engine's; here is what its answers mean, and what a crash report asks of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Optional

from dmods import signals
from dmods._engine import Unwinder
from dmods.errors import FaultError
from dmods.kept import kept
from dmods.names import describe_code
from dmods.target import Signal, Target, Thread

FRAME_LIMIT = 256
# In all, where many threads are unwound: 30,000 of 60 frames each. In a crafted core all of them may share one
# deep stack.
MOST_FRAMES = 2_000_000

# How a frame was found: believed, and guessed (see engine/core/src/unwind).
_GUESSES = {
    "frame pointer": "guess: by the frame pointer, no unwind tables here",
    "bad jump": "guess: the return address of a jump to where no code is",
    "leaf": "guess: no unwind tables here, but the call at the top of the stack leads to this code",
    "scan": "guess: a signal frame found by looking for one, unwinding stopped short",
}

ENDS = {
    "outermost": "the outermost frame",
    "zero": "the return address is 0",
    "no tables": "no unwind tables for this pc, and no frame pointer chain",
    "not code": "this pc is in no executable mapping",
    "unreadable": "what the unwind tables ask for is not in the dump",
    "not increasing": "the caller's frame would be below this one",
    "limit": "more frames than were asked for",
}

# The ends at which nothing is missing.
WHOLE = frozenset({"outermost", "zero"})


@dataclass(frozen=True)
class Frame:
    """A function that was running.

    ``pc`` is the instruction that was to run next where ``exact`` (the innermost frame, a frame that a signal
    interrupted), else a return address: the call is the instruction before it. ``sp`` is the stack pointer at ``pc``: a
    caller's is the callee's canonical frame address (CFA). ``registers`` are those that are known in this frame.

    ``found``: "thread" (its own registers), "cfi", "signal" (the kernel saved them), or a guess: "frame pointer",
    "leaf" (the caller of code without tables that was just called), "bad jump" (the caller of a jump to where no code
    is), "scan" (a signal frame that unwinding did not reach).
    """

    pc: int
    sp: int
    found: str
    exact: bool
    registers: Mapping[str, int]
    trampoline: bool = False  # the code that a signal handler returns to: the next frame is what the signal interrupted
    ucontext: Optional[int] = None  # of a trampoline: where the kernel saved the registers
    siginfo: Optional[int] = None  # ... and the siginfo_t

    @property
    def code_address(self) -> int:
        """An address inside the instruction: what to look symbols and lines up with.

        A return address may belong to the next function, when the call before it does not return. A trampoline was
        never called: its address is where it begins.
        """
        return self.pc if self.exact or self.trampoline else self.pc - 1

    @property
    def guess(self) -> Optional[str]:
        """Why this frame is only likely; None if it is certain."""
        return _GUESSES.get(self.found)

    @property
    def interrupted(self) -> bool:
        """Whether a signal stopped the thread at exactly ``pc``."""
        return self.found == "signal"


class Stack(NamedTuple):
    """The frames, innermost first, and why there are no more: a key of ENDS."""

    frames: list[Frame]
    end: str


def walk(target: Target, thread: Thread, limit: int = FRAME_LIMIT) -> Stack:
    """The thread's stack. Bounded, whatever the dump says; what cannot be read ends it."""
    frames, end = _unwinder(target).unwind(dict(thread.registers), limit)
    return Stack(
        [
            Frame(pc, sp, found, exact, registers, trampoline, ucontext, siginfo)
            for pc, sp, found, exact, trampoline, ucontext, siginfo, registers in frames
        ],
        end,
    )


def unwind(target: Target, thread: Thread, limit: int = FRAME_LIMIT) -> list[Frame]:
    """The thread's frames, innermost first."""
    return walk(target, thread, limit).frames


class ManyThreads:
    """Unwinds thread after thread; of those that come after ``MOST_FRAMES`` frames (``missed`` of them) no more than
    the innermost frame."""

    def __init__(self, target: Target, limit: int = FRAME_LIMIT) -> None:
        self.missed = 0
        self._target, self._limit, self._left = target, limit, MOST_FRAMES

    @property
    def tired(self) -> bool:
        return self._left <= 0

    def unwind(self, thread: Thread) -> list[Frame]:
        self.missed += self.tired
        frames = unwind(self._target, thread, min(self._limit, 1) if self.tired else self._limit)
        self._left -= len(frames) + 1
        return frames


@kept
def _unwinder(target: Target) -> Unwinder:
    modules = [(m.start, m.end, m.bias % (1 << 64), m.file) for m in target.modules()]
    code = [(m.start, m.end) for m in target.mappings() if "x" in m.flags]
    return Unwinder(target.image(), target.arch.name, modules, code)


def describe(target: Target, frame: Frame) -> str:
    """``symbol+offset`` of the frame's pc, with the module before a backquote where it is not the program."""
    return describe_code(target, frame.pc, frame.code_address)


def signal_of(target: Target, frame: Frame) -> Optional[Signal]:
    """The signal whose handler returns to this frame. None unless it is a trampoline whose siginfo is in the dump."""
    if frame.siginfo is None:
        return None
    try:
        return signals.parse(target.read(frame.siginfo, signals.SIGINFO_SIZE), target.arch.word)
    except FaultError:
        return None


class Trap(NamedTuple):
    """What a signal stopped: the frame at exactly the pc it stopped at, and the signal if the dump holds it."""

    frame: Frame
    signal: Optional[Signal]


def traps(target: Target, frames: Iterable[Frame]) -> list[Trap]:
    """Every frame that a signal interrupted, innermost first."""
    found = []
    before: Optional[Frame] = None
    for frame in frames:
        if before is not None and before.trampoline and frame.interrupted:
            found.append(Trap(frame, signal_of(target, before)))
        before = frame
    return found


def original_trap(target: Target, frames: Iterable[Frame]) -> Optional[Trap]:
    """What a handler was called for: the oldest fault on the stack, for what came later came out of handling it.

    Without any fault (only signals that somebody sent), the innermost interrupted frame. None: no signal frame.
    """
    found = traps(target, frames)
    faults = [trap for trap in found if trap.signal is not None and signals.is_fault(trap.signal)]
    return faults[-1] if faults else (found[0] if found else None)


def trap_frame(target: Target, thread: Thread) -> Optional[Frame]:
    """The frame that truly trapped, when a handler ran after it (and perhaps called abort). None: no handler."""
    trap = original_trap(target, unwind(target, thread))
    return trap.frame if trap else None
