"""The stacks of a kernel's tasks, with the exact place where each was trapped.

Every frame says how it was found. Unwind tables and saved registers (pt_regs) are believed. A frame that is only likely
is marked as a guess. Nothing beyond the boundary to user space is a frame.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Optional, Protocol

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.stacks.traps import CodeMap, Machine, StackRange, TrapFrame

FRAME_LIMIT = 256
_MOST_SCANS = 8

# How a frame was found, if that is not certain.
GUESSES = {
    "bad jump": "guess: the return address of a jump to where no code is",
    "smashed return": "guess: the next return address on the stack, one or more callers are lost",
    "frame pointer": "guess: by the frame pointer, no unwind tables here",
    "link register": "guess: by the link register",
    "no call": "guess: no call ends at this return address",
    "scan": "found by looking for saved registers, because unwinding stopped early",
}
#: After a frame found in one of these ways, the walk may have missed frames.
UNSURE = GUESSES.keys() - {"bad jump"}

ENDS = {
    "user": "entered from user space",
    "outermost": "the outermost frame",
    "no tables": "no unwind tables for this pc",
    "not code": "this pc is not in kernel code",
    "no registers there": "the saved registers at this address are not valid",
    "unreadable": "what the unwind tables ask for is not in the dump",
    "not increasing": "the caller's frame would be below this one",
    "off the stack": "the caller's frame would not be on a stack",
    "limit": "the frame limit was reached",
    "replaced": "tracing has replaced the return address, and the true one is not in the dump",
    "no registers": "the dump lacks the registers of this task's CPU",
    "user mode": "the task was running in user space",
}

WHOLE = frozenset({"user", "outermost", "user mode"})


class Frame(NamedTuple):
    """A function that was running.

    Where ``exact``, ``pc`` is the next instruction: in the innermost frame of a running task, and in a trapped frame.
    Otherwise ``pc`` is a return address, and the call is the instruction before it. ``trap`` has the saved registers
    that the frame comes from. ``found`` is "cpu", "switched out", "unwind", "trap", "left behind" (crash_cpu.py),
    "detour", "overwritten", or a key of GUESSES. "detour" is the instruction that an optimized kprobe has replaced by a
    jump. "overwritten" is a return address that was on the stack, but was overwritten.
    ``through`` is the function of a tracer that the frame's callee returns to, because its return address was replaced:
    ``pc`` is the true one. ``lost`` are the return addresses of which one was overwritten: the frame between is lost.
    ``instead`` is what was on the stack in place of a return address that was overwritten.
    """

    pc: int
    sp: int
    exact: bool
    found: str
    registers: Mapping[str, int]
    trap: Optional[TrapFrame] = None
    through: str = ""
    lost: tuple[int, ...] = ()
    instead: Optional[int] = None


class Gap(NamedTuple):
    """A place where frames are missing: before the frame ``before`` of a stack, or before the entry from user space.

    ``pc`` is where unwinding stopped, and ``why`` is the reason (a key of ENDS).
    """

    before: int
    pc: int
    why: str

    def __str__(self) -> str:
        """Return the gap in words."""
        if self.why in ("no tables", "not code"):
            return f"frames are missing here: no unwind information for {self.pc:#x}"
        return f"frames are missing here, above {self.pc:#x}: {ENDS[self.why]}"


class Stack(NamedTuple):
    """The frames of a task, innermost first.

    ``end`` says why there are no more (a key of ENDS). ``user`` has the registers saved when the task entered the
    kernel from user space, if the stack reaches that far. ``gaps`` are where frames are missing.
    """

    frames: list[Frame]
    end: str
    user: Optional[TrapFrame]
    gaps: tuple[Gap, ...] = ()

    def gap_before(self, index: int) -> Optional[Gap]:
        """Return the gap right before that frame, or None. After the last frame comes the entry from user space."""
        return next((gap for gap in self.gaps if gap.before == index), None)

    @property
    def traps(self) -> list[TrapFrame]:
        """Return all saved registers on the stack, innermost first."""
        kernel = [frame.trap for frame in self.frames if frame.trap is not None]
        return [*kernel, self.user] if self.user is not None else kernel


class Step(NamedTuple):
    """One step of an unwinder to the caller of a frame: a frame, saved registers, or an end."""

    frame: Optional[Frame] = None
    trap: Optional[TrapFrame] = None
    end: str = ""


class Unwinder(Protocol):
    """An unwinder of one architecture."""

    def step(self, frame: Frame, task: int) -> Step:
        """Return the step from a frame to its caller. ``task`` is the address of the task that runs there."""


class StackWalker:
    """Walks stacks with an unwinder. Where the unwinder stops early, it looks for saved registers."""

    def __init__(
        self, memory: Memory, machine: Machine, code: CodeMap, unwinder: Unwinder, shared: list[StackRange]
    ) -> None:
        """Prepare the walker. ``shared`` are the stacks that belong to CPUs."""
        self.memory = memory
        self.machine = machine
        self.code = code
        self.unwinder = unwinder
        self.shared = sorted(shared, key=lambda stack: stack.start)
        self._starts = [stack.start for stack in self.shared]

    def walk(self, first: Frame, own: StackRange, limit: int = FRAME_LIMIT, task: int = 0) -> Stack:
        """Return the stack of a task. ``first`` is its innermost frame, ``own`` its own stack, ``task`` its address.

        The walk is bounded, whatever the dump holds.
        """
        frames = [first]
        seen = {(first.pc, first.sp)}
        left: list[StackRange] = []  # stacks that the walk has left; it never returns to one
        gaps: list[Gap] = []
        scans = 0
        while True:
            last = frames[-1]
            step = self.unwinder.step(last, task)
            frame, end = self._accept(last, step, own, left, seen)
            if step.trap is not None and step.trap.user and end == "user":
                return Stack(frames, end, step.trap, tuple(gaps))
            if frame is None and end not in WHOLE and scans < _MOST_SCANS:
                scans += 1
                trap = self._scan(last, own)
                if trap is not None and trap.entry != last.pc and len(frames) < limit:
                    refused = step.frame.pc if step.frame is not None and end == "not code" else last.pc
                    gaps.append(Gap(len(frames), refused, end))
                if trap is not None and trap.user:
                    return Stack(frames, "user", trap, tuple(gaps))
                if trap is not None and (trap.pc, trap.sp) not in seen:
                    frame = frame_of(trap, "scan")
            if frame is None:
                return Stack(frames, end, None, tuple(gaps))
            if len(frames) >= limit:
                return Stack(frames, "limit", None, tuple(gaps))
            before, now = self.stack_at(last.sp, own), self.stack_at(frame.sp, own)
            if before is not None and now is not before:
                left.append(before)
            seen.add((frame.pc, frame.sp))
            frames.append(frame)

    def stack_at(self, sp: int, own: StackRange) -> Optional[StackRange]:
        """Return the stack that ``sp`` points into or to the end of, or None."""
        if own.start <= sp <= own.end:
            return own
        at = bisect_right(self._starts, sp) - 1
        # The end of one stack may be the start of the next. A pointer there belongs to the lower stack.
        for stack in self.shared[max(0, at - 1) : at + 1]:
            if stack.start < sp <= stack.end:
                return stack
        return None

    def _accept(
        self, last: Frame, step: Step, own: StackRange, left: list[StackRange], seen: set[tuple[int, int]]
    ) -> tuple[Optional[Frame], str]:
        """Return (the next frame, ""), or (None, why the search ends)."""
        if step.trap is not None:
            if step.trap.user:
                return None, "user"
            frame = frame_of(step.trap, "trap")
        elif step.frame is not None:
            frame = step.frame
        else:
            return None, step.end
        now, before = self.stack_at(frame.sp, own), self.stack_at(last.sp, own)
        # Saved registers are certain, wherever their stack pointer leads: to a guard page, to user space in the first
        # instructions of SYSCALL's entry, or to no address at all before a double fault.
        if now is None and before is not None and step.trap is None:
            return None, "off the stack"
        if (frame.pc, frame.sp) in seen or now in left or (now is before and frame.sp < last.sp):
            return None, "not increasing"
        if not frame.exact and not self.code.is_code(frame.pc - 1) and frame.found in ("unwind", "no call"):
            return (None, "not code") if frame.pc else (None, "outermost")
        return frame, ""

    def _scan(self, last: Frame, own: StackRange) -> Optional[TrapFrame]:
        """Return the innermost saved registers above ``last`` on its stack, or None.

        Without registers, the search goes on on the task's own stack. A stack pointer that leads to no stack tells
        nothing about what is in use there. Then only the registers at its very end count, those of the entry from user
        space.
        """
        here = self.stack_at(last.sp, own)
        if here is None:
            return next((trap for trap in self.machine.scan(self.memory, own, self.code) if trap.user), None)
        ranges = [(here, last.sp)]
        if here is not own:
            # The switch to an interrupt stack leaves the old stack pointer at the top of the new one (asm/irq_stack.h).
            link = self.memory.word(here.end - 8)
            ranges.append((own, link if link is not None and link in own else own.start))
        for stack, low in ranges:
            for trap in self.machine.scan(self.memory, stack, self.code):
                before = last.trap is not None and last.trap.address in stack and trap.address <= last.trap.address
                if trap.address >= low and not before:
                    return trap
        return None


def frame_of(trap: TrapFrame, found: str) -> Frame:
    """Return the frame that the saved registers describe."""
    return Frame(trap.pc, trap.sp, True, found, trap.registers, trap)


def bad_jump(memory: Memory, code: CodeMap, frame: Frame, sp_name: str) -> Optional[Frame]:
    """Return the caller of a jump to where no code is, or None.

    On x86 the call has left its return address at the top of the stack.
    """
    back = memory.word(frame.sp)
    if back is None or not code.after_call(back):
        return None
    registers = {name: value for name, value in frame.registers.items() if name != "rip"}
    registers[sp_name] = frame.sp + 8
    return Frame(back, frame.sp + 8, False, "bad jump", registers)
