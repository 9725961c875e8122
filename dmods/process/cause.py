"""Find why a process died: the signal, the faulting address, and the frame that trapped."""

from __future__ import annotations

from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.process import signals
from dmods.process.abort_message import abort_message
from dmods.process.mappings import mapping_at
from dmods.process.threads import find_thread, stack_of
from dmods.process.unwind import Frame, original_trap, unwind
from dmods.target import Signal, Target, Thread

PAST_END = "bytes past the end"  # of a stack overflow by one large array
NULL_PAGE = 0x10000  # mmap_min_addr of Debian and Fedora: nothing is mapped below
_OVERFLOW_REACH = 1 << 20  # how far past the end of its stack one frame may reach
_LEAP_MAX = 1 << 40  # how far past that end an array may reach whose size is a variable
_FRAME_MAX = 1 << 16  # how far above that end sp may be: a large frame is written before sp reaches the end


@dataclass(frozen=True)
class Cause:
    """Why the process died.

    ``signal`` ended ``thread``. It is None if the process was alive, or if the dump does not say. ``trap`` is the first
    fault: ``signal`` itself, or the fault whose handler then ended the process (``handled``). ``frame`` is where the
    trap happened, at its exact pc. It is None if the dump has no registers.
    """

    thread: Thread
    signal: Optional[Signal]
    trap: Optional[Signal]
    handled: bool
    frame: Optional[Frame]
    abort_message: Optional[str]
    pid: Optional[int] = None

    @property
    def message(self) -> str:
        """Return one line: what happened, in order."""
        alive = "the process was alive"
        if not self.handled:
            return self._told(self.signal) if self.signal else alive
        ended = f"ended by {self._told(self.signal)}" if self.signal else alive
        return f"{self._told(self.trap) if self.trap else 'a signal'}; {ended}, in its handler"

    def _told(self, signal: Signal) -> str:
        text = signals.describe(signal)
        if signal.address is not None:
            return f"{text} at {signal.address:#x}"
        if not signal.sender:
            return text
        return f"{text}, sent by {'the process itself' if signal.sender == self.pid else f'process {signal.sender}'}"


def find_cause(target: Target) -> Cause:
    """Return why the process died. Raises UserError for a dump without threads."""
    thread = find_thread(target, None)
    frames = unwind(target, thread)
    signal = thread.signal if thread.signal and signals.is_deadly(thread.signal) else None
    trap = original_trap(target, frames)
    if trap is not None and (trap.signal is None or signals.is_fault(trap.signal)):
        return Cause(thread, signal, trap.signal, True, trap.frame, _abort_message(target, signal), target.pid)
    return Cause(
        thread, signal, signal, False, frames[0] if frames else None, _abort_message(target, signal), target.pid
    )


def _abort_message(target: Target, signal: Optional[Signal]) -> Optional[str]:
    """Return what glibc printed before it called abort (assert, heap checks, stack smashing), or None."""
    return abort_message(target, signal is not None and signal.number == signals.SIGABRT)


def explain_address(target: Target, cause: Cause) -> Optional[str]:
    """Return what the faulting address is, in words. None if the signal has no address."""
    trap, frame = cause.trap, cause.frame
    if trap is None or not signals.is_fault(trap):
        return None
    if trap.address is None:
        if trap.number == signals.SIGSEGV and trap.code == signals.SI_KERNEL:
            return "the processor did not say: the address is not canonical, or the instruction is privileged"
        return None
    address = trap.address
    if trap.number not in (signals.SIGSEGV, signals.SIGBUS):
        return None  # SIGFPE, SIGILL and SIGTRAP: the address is the pc
    if frame is not None and address == frame.pc and not _mapped_for(target, address, "x"):
        return f"the pc itself: a jump to {_place(target, cause.thread, frame, address, 'execute')}"
    past_end = trap.number == signals.SIGBUS and signals.code_name(trap.number, trap.code or 0) == "BUS_ADRERR"
    return _place(target, cause.thread, frame, address, "past the end" if past_end else "")


def _place(target: Target, thread: Thread, frame: Optional[Frame], address: int, trouble: str) -> str:
    if address < NULL_PAGE:
        return "NULL" if address == 0 else f"the NULL page: NULL plus {address:#x}"
    overflow = _overflown(target, thread, address, frame)
    if overflow:
        return overflow
    mapping = mapping_at(target, address)
    if mapping is None:
        return f"{'an address ' if trouble == 'execute' else ''}in no mapping{near_mapping(target, address)}"
    if trouble == "execute":
        what = "memory that is not executable"
    elif trouble == "past the end":
        what = "past the end of the mapped file"  # mmap(2): or an error when reading it
    elif "w" in mapping.flags:
        what = "writable memory"
    else:
        what = "read-only memory" if "r" in mapping.flags else "memory that may not be accessed"
    file = f" {mapping.path} at {mapping.offset + address - mapping.start:#x}" if mapping.path else ""
    return f"{what}{file} ({mapping.flags} {mapping.start:#x}-{mapping.end:#x})"


def _overflown(target: Target, thread: Thread, address: int, frame: Optional[Frame]) -> Optional[str]:
    """Return a stack overflow in words: address and stack pointer are past the end of the stack. Or None."""
    sp = frame.sp if frame is not None else thread.registers.get(target.arch.sp)
    stack = stack_of(target, thread)
    if sp is None or stack is None:
        return None
    if stack.start <= address < stack.end and _mapped_for(target, address, "w"):
        return None
    # glibc counts the guard pages as a part of the stack. A program may have made further ones.
    pieces = [m.start for m in target.mappings() if "w" in m.flags and m.start < stack.end and m.end > stack.start]
    bottom = max(stack.start, min((start for start in pieces if start > address), default=stack.start))
    what = f"below the stack of thread {thread.tid}: a stack overflow"
    if bottom - _OVERFLOW_REACH <= address < bottom and bottom - _OVERFLOW_REACH <= sp < bottom + _FRAME_MAX:
        return f"{what}, {stack.end - bottom} bytes of stack are used up"
    # One large array takes sp far below, to where other memory may be, or none.
    is_far = bottom - _LEAP_MAX <= sp < bottom and sp - target.arch.red_zone <= address < bottom
    if is_far and any(stack.start <= each.sp < stack.end for each in unwind(target, thread)):
        return f"{what}, its stack pointer is {bottom - sp} {PAST_END}"
    return None


def _mapped_for(target: Target, address: int, access: str) -> bool:
    mapping = mapping_at(target, address)
    return mapping is not None and access in mapping.flags


def near_mapping(target: Target, address: int) -> str:
    """Return the nearest mapping in words that follow "in no mapping"; "" if none is within a megabyte."""
    near = [
        (distance, f", {distance} bytes {side} {mapping.path or 'a mapping'} {mapping.start:#x}-{mapping.end:#x}")
        for mapping in target.mappings()
        for distance, side in ((address - mapping.end + 1, "past"), (mapping.start - address, "before"))
        if 0 < distance <= 1 << 20
    ]
    return min(near)[1] if near else ""
