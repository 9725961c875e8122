"""The stacks of threads, found through libc's own records in memory. No debug information is needed.

glibc and musl put the ``struct pthread`` of each thread at the top of the thread's stack. It holds the bounds of the
stack. glibc keeps the stacks of exited threads for reuse (up to 40 MB by default, ``allocatestack.c``). musl keeps
those of threads that were not joined. Their content is dead.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Callable, Optional

from dmods._engine import find_dtv_pointers, find_self_pointers
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.base.rows import at_or_before
from dmods.base.words import Words
from dmods.errors import FaultError, UsageError, UserError
from dmods.process import glibc_tid
from dmods.process.mappings import mapping_at
from dmods.process.stack_bounds import STRUCT_PTHREAD_MAX, first_stack, is_tcb, musl_pthread, stack_block
from dmods.process.unwind import Frame, ManyThreads, unwind
from dmods.target import AddressRange, Target, Thread

_ABOVE_FRAMES = 256  # bytes above the outermost frame's sp that may hold its arguments
_TOP = 1 << 64


class ThreadStack(NamedTuple):
    """The stack of a thread, ``[start, end)``. The guard lies at its bottom; static TLS and ``struct pthread`` at its
    top.

    ``tid`` None: the thread has exited. Then only its ``struct pthread``, from ``tcb`` up, still means something.
    ``sp`` None: the thread has exited, or the dump has no registers of it. ``sp`` may lie outside, on an alternate
    signal stack (see ``live_stacks``). ``tcb`` None: glibc did not make the thread, or the TCB is not in the dump.

    ``known``: glibc or the kernel says where this stack begins and ends. Otherwise the program made the stack itself,
    and the bounds are those of the mapping, which may hold anything else as well.
    """

    tid: Optional[int]
    start: int
    end: int
    sp: Optional[int]
    tcb: Optional[int]
    known: bool = True


class LiveStack(NamedTuple):
    """The live part, ``[start, end)``, of one stack of a thread. ``note`` says which stack it is.

    ``start`` is the stack pointer. For a frame that a signal interrupted it is lower by the red zone, which the kernel
    leaves alone. ``known`` is as in ThreadStack. Where it is false, ``outermost`` is the sp of the outermost frame, and
    ``end`` is near it.
    """

    start: int
    end: int
    note: str
    known: bool = True
    outermost: int = 0


def stacks_of(target: Target, skip: Sequence[tuple[int, int]] = ()) -> list[ThreadStack]:
    """Return every stack: those of live threads first, then those of exited threads by address.

    ``skip`` are (start, end) ranges (heaps). Stacks of exited threads are not searched for in them. Every other
    anonymous writable mapping is read once.
    """
    return survey_threads(target, skip).stacks


class ThreadSurvey(NamedTuple):
    """The stacks, as `stacks_of` returns them, and the thread pointers of threads that are not in the dump.

    Those may have exited. In the child of a fork they may be threads of the parent, its first thread too. Some may be
    words that only look like a thread pointer.
    """

    stacks: list[ThreadStack]
    other_pointers: list[int]


def survey_threads(target: Target, skip: Sequence[tuple[int, int]] = ()) -> ThreadSurvey:
    """Return what memory tells of the threads. ``skip`` is as in `stacks_of`."""
    many = ManyThreads(target)
    live = [stack for thread in target.threads() if (stack := _live(target, thread, many.unwind)) is not None]
    candidates = _tcb_candidates(target, live, skip)
    bounds = {tcb: stack_block(target, tcb, mapped_only=True) for tcb in candidates}
    tcbs = {tcb: block for tcb, block in bounds.items() if block is not None}
    # Dumps of qemu-user hold no thread pointer. Then a stack belongs to the thread whose sp lies in it.
    by_address = sorted((start, end, tcb) for tcb, (start, end) in tcbs.items())

    def with_tcb(stack: ThreadStack) -> ThreadStack:
        if stack.tcb is not None or stack.sp is None:
            return stack
        index = bisect_right(by_address, (stack.sp, _TOP, _TOP)) - 1
        if index < 0 or stack.sp >= by_address[index][1]:
            return stack
        start, end, tcb = by_address[index]
        return ThreadStack(stack.tid, start, end, stack.sp, tcb)  # glibc made it after all

    live = [with_tcb(stack) for stack in live]
    return ThreadSurvey(live + _without_registers(target, live, tcbs), candidates)


def stack_of(target: Target, thread: Thread) -> Optional[ThreadStack]:
    """Return the stack that the thread was started on, even if it runs on another one now. None: the dump has no
    memory near the thread's stack pointer."""
    return _live(target, thread, partial(unwind, target))


class LiveStackFinder:
    """Finds the live stacks of one thread after the other, within the budget of ManyThreads."""

    def __init__(self, target: Target) -> None:
        self._target, self._many = target, ManyThreads(target)

    @property
    def out_of_budget(self) -> bool:
        """Return whether the budget of frames is spent: nothing is known of the threads that follow."""
        return self._many.out_of_budget

    def live_stacks(self, thread: Thread) -> list[LiveStack]:
        """Return the stacks that the thread was using. See `live_stacks`."""
        return self.frames_and_stacks(thread)[1]

    def frames_and_stacks(self, thread: Thread) -> tuple[list[Frame], list[LiveStack]]:
        """Return the thread's frames, and the stacks that it was using."""
        frames = self._many.unwind(thread)
        return frames, _live_stacks(self._target, thread, frames)


def live_stacks(target: Target, thread: Thread) -> list[LiveStack]:
    """Return the stacks that the thread was using: the one it ran on, and those it left for a signal handler."""
    return LiveStackFinder(target).live_stacks(thread)


def _live_stacks(target: Target, thread: Thread, frames: list[Frame]) -> list[LiveStack]:
    if not frames:
        return []
    own = _live(target, thread, lambda _thread: frames)
    stacks: list[LiveStack] = []
    for index, frame in enumerate(frames):
        interrupted = index > 0 and frames[index - 1].trampoline
        if index and not interrupted:
            continue
        if any(stack.start <= frame.sp < stack.end for stack in stacks):
            continue  # the signal was handled on the stack that it interrupted
        start = frame.sp - (target.arch.red_zone if interrupted else 0)
        alternate = _alternate_stack(target, frames[index:], frame.sp)
        if alternate is not None:
            stacks.append(LiveStack(max(start, alternate[0]), alternate[1], "alternate signal stack"))
            continue
        note = "interrupted by a signal" if interrupted else "running"
        if own is not None and own.known and own.start <= frame.sp < own.end:
            stacks.append(LiveStack(start, own.end, note))
            continue
        holder = mapping_at(target, frame.sp)
        if holder is not None:
            outermost = _outermost(frames[index:], holder).sp
            end = min(holder.end, outermost + _ABOVE_FRAMES)
            stacks.append(LiveStack(start, end, note, known=False, outermost=outermost))
    if (
        own is not None
        and own.known
        and own.tcb is not None
        and not any(own.start <= stack.start < own.end for stack in stacks)
    ):
        # The thread runs on a stack that the program made, or unwinding stopped in a signal handler. Where the thread
        # left its first stack is not known, so all of that stack counts as live.
        stacks.append(LiveStack(own.start, own.end, "all of it: where the thread left it is not known"))
    return stacks


def find_thread(target: Target, text: Optional[str]) -> Thread:
    """Return the thread that a user means, by tid, by ``pthread_t`` or by name. None: the thread that died.

    Raises UsageError.
    """
    threads = target.threads()
    if not threads:
        raise UserError("the dump has no threads", "its NT_PRSTATUS notes are missing: take another dump")
    if text is None:
        return threads[0]
    number = int(text, 0) if re.fullmatch(r"0[xX][0-9a-fA-F]+|[1-9][0-9]*", text) else None
    pointer = target.arch.thread_pointer
    matches = [t for t in threads if number is not None and number in (t.tid, t.registers.get(pointer))]
    matches = matches or [t for t in threads if t.name == text]
    if len(matches) == 1:
        return matches[0]
    choices = matches or threads
    tids = ", ".join(str(thread.tid) for thread in choices[:8]) + (", ..." if len(choices) > 8 else "")
    what = f"{len(matches)} threads have the name {text!r}" if matches else f"there is no thread {text!r}"
    raise UsageError(what, f"give a tid: {tids}")


def _outermost(frames: Sequence[Frame], mapping: AddressRange) -> Frame:
    """Return the last of the first frames that lie in the mapping. The first one does."""
    return [*takewhile(lambda frame: frame.sp in mapping, frames)][-1]


def _alternate_stack(target: Target, frames: Iterable[Frame], sp: int) -> Optional[tuple[int, int]]:
    """Return the alternate signal stack that holds ``sp``, or None.

    The kernel writes the bounds of the alternate stack into each signal frame (uc_stack).
    """
    word = target.arch.word
    for frame in frames:
        if frame.ucontext is None:
            continue
        try:  # uc_flags, uc_link, then stack_t: ss_sp, ss_flags (an int), ss_size
            data = target.read(frame.ucontext + 2 * word, 3 * word)
        except FaultError:
            continue
        start, _flags, size = struct.unpack("<QQQ" if word == 8 else "<III", data)
        if start <= sp < start + size:
            return start, start + size
    return None


def _mapping_above(target: Target, address: int) -> Optional[AddressRange]:
    """Return the first writable mapping above, at most a megabyte away: a stack that overflowed has left it."""
    mappings = target.mappings()
    above = islice(mappings, at_or_before(mappings, address) + 1, None)
    near = takewhile(lambda mapping: mapping.start - address <= 1 << 20, above)
    return next((mapping for mapping in near if "w" in mapping.flags), None)


def _live(target: Target, thread: Thread, frames_of: Callable[[Thread], list[Frame]]) -> Optional[ThreadStack]:
    """Return the stack that the thread was started on. `frames_of` is only called where glibc does not know it."""
    sp = thread.registers.get(target.arch.sp)
    if sp is None:
        return None
    tcb = thread.registers.get(target.arch.thread_pointer) if target.arch.thread_pointer else None
    if tcb is not None and not is_tcb(target, tcb):
        tcb = None
    first = first_stack(target)
    if tcb is not None:
        bounds = stack_block(target, tcb)
        # Words behind the TCB of the first thread, which has no such block, may look like one.
        if bounds is not None and (bounds[0] <= sp < bounds[1] or first is None or not first[0] <= sp < first[1]):
            return ThreadStack(thread.tid, *bounds, sp, tcb)
    # The main thread: the kernel made its stack, and glibc does not know where it begins. Its outermost frame lies
    # there, even while the thread runs on an alternate signal stack. (In a damaged dump that frame may lie in no
    # mapping.)
    pointers = (*(frame.sp for frame in reversed(frames_of(thread))), sp)
    mapping = next(filter(None, (mapping_at(target, pointer) for pointer in pointers)), None)
    is_lost = mapping is None and thread.tid == target.pid  # of the first thread, its stack is known nevertheless
    mapping = mapping or _mapping_above(target, sp)
    if first is not None and (is_lost or (mapping is not None and first[0] <= mapping.start < first[1])):
        return ThreadStack(thread.tid, *first, sp, tcb)
    return ThreadStack(thread.tid, mapping.start, mapping.end, sp, tcb, known=False) if mapping is not None else None


def _tcb_candidates(target: Target, live: Sequence[ThreadStack], skip: Sequence[tuple[int, int]]) -> list[int]:
    """Return where thread control blocks may be that no register points to.

    A TCB of x86 points to itself. A TCB of AArch64 points to a dtv.
    """
    live_tcbs = {stack.tcb for stack in live}
    ranges = Ranges(skip).without((m.start, m.end) for m in target.mappings() if _may_hold_stacks(m))
    if target.arch.tcb_is_pthread:
        candidates = find_self_pointers(target.image(), ranges, target.arch.word)
    else:
        candidates = find_dtv_pointers(target.image(), ranges)
    return [tcb for tcb in candidates if tcb not in live_tcbs]


def _without_registers(
    target: Target, live: Sequence[ThreadStack], tcbs: Mapping[int, tuple[int, int]]
) -> list[ThreadStack]:
    """Return the stacks of threads that have exited, and of threads whose registers the dump lacks."""
    at = _tid_offset(target, live, tcbs)
    if at is None and sum(stack.tcb is None for stack in live) > 1:
        return []  # one of them may belong to a thread that runs on an alternate signal stack now
    stacks = []
    taken = Ranges((stack.start, stack.end) for stack in live)
    for tcb, bounds in tcbs.items():
        if taken.within(*bounds):
            continue
        # The kernel clears the tid when a thread exits (CLONE_CHILD_CLEARTID). If it is not 0, the thread is alive and
        # the dump has no registers of it.
        tid = 0 if at is None or _has_ended(target, tcb, at) else _int32(target, tcb + at)
        stacks.append(ThreadStack(tid if tid > 0 else None, *bounds, None, tcb))
    return sorted(stacks, key=lambda stack: stack.start)


def _has_ended(target: Target, tcb: int, at: int) -> bool:
    """Return whether glibc says that a thread without registers has ended. Since 2.43 its tid does not."""
    if musl_pthread(target, tcb) is not None:
        return False
    ending = glibc_tid.ending(Words(target.image(), target.arch.word), tcb, at)
    return ending is not None and (ending.exiting or ending.freed)


def _may_hold_stacks(mapping: AddressRange) -> bool:
    return mapping.anonymous and "w" in mapping.flags


def tid_offset(target: Target, stacks: Sequence[ThreadStack]) -> Optional[int]:
    """Return the offset of the tid in ``struct pthread``, from the TCB, or None where it is not known."""
    ended = [stack.tcb for stack in stacks if stack.sp is None and stack.tcb is not None]
    return _tid_offset(target, [stack for stack in stacks if stack.sp is not None], ended)


def _tid_offset(target: Target, live: Sequence[ThreadStack], others: Iterable[int]) -> Optional[int]:
    """Return the offset of the tid in ``struct pthread``, from the TCB: where every live thread has its own tid.

    ``others`` are further TCBs.
    """
    own = [stack.tcb for stack in live if stack.tcb is not None and musl_pthread(target, stack.tcb) is None]
    if own:
        words = Words(target.image(), target.arch.word)
        found = glibc_tid.tid_offset(words, target.arch, [*own, *others], STRUCT_PTHREAD_MAX)
        if found is not None:
            return found
    first = 0 if target.arch.tcb_is_pthread else -STRUCT_PTHREAD_MAX
    common: Optional[set[int]] = None
    for stack in live[:64]:
        if stack.tcb is None or stack.tid is None:
            continue
        if stack.tid != target.pid and not stack.start <= stack.tcb < stack.end:
            continue  # made without glibc: it shares another thread's TCB, or has one of its own
        data = target.image().read(stack.tcb + first, STRUCT_PTHREAD_MAX)
        values = struct.unpack(f"<{len(data) // 4}i", data[: len(data) // 4 * 4])
        here = {first + 4 * index for index, value in enumerate(values) if value == stack.tid}
        common = here if common is None else common & here
    return min(common) if common else None


def _int32(target: Target, address: int) -> int:
    data = target.image().read(address, 4)
    return int.from_bytes(data, "little", signed=True) if len(data) == 4 else 0
