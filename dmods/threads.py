"""Where threads keep their stacks, known from glibc's own records in memory; no debug information is needed.

glibc puts each thread's ``struct pthread`` at the top of its stack, and in it the stack's bounds. It keeps the stacks
of exited threads for reuse (up to 40 MB by default, ``allocatestack.c``), and their content is garbage.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Callable, NamedTuple, Optional

from dmods import stacks
from dmods._engine import find_dtv_pointers, find_self_pointers
from dmods.errors import FaultError, UsageError, UserError
from dmods.ranges import Ranges
from dmods.rows import firsts
from dmods.target import AddressRange, Target, Thread

_PAGE = 4096
_STACK_MIN = 16384  # PTHREAD_STACK_MIN of x86; arm64's is larger
_TOP = 1 << 64
_PTHREAD_MAX = 0xC00  # sizeof(struct pthread): 2304 in glibc 2.31 to 2.41 on x86-64


class ThreadStack(NamedTuple):
    """A thread's stack, ``[start, end)``: where glibc made it, with the guard at its bottom, and static TLS and then
    ``struct pthread`` at its top.

    ``tid`` None: the thread has exited, and only the ``struct pthread`` from ``tcb`` up means anything. ``sp`` None:
    exited, or not among the dump's threads; it may lie elsewhere, on an alternate signal stack (see ``live_stacks``).
    ``tcb`` None: not glibc's, or not in the dump.
    """

    tid: Optional[int]
    start: int
    end: int
    sp: Optional[int]
    tcb: Optional[int]


class LiveStack(NamedTuple):
    """The live part of one stack of a thread, ``[start, end)``, and which: a thread may have an alternate one too.

    ``start`` is the stack pointer; of a frame that a signal interrupted, less the red zone, which the kernel keeps.
    """

    start: int
    end: int
    note: str


def stacks_of(target: Target, skip: Sequence[tuple[int, int]] = ()) -> list[ThreadStack]:
    """Every stack, live threads first, then those of exited threads by address.

    ``skip`` are (start, end) ranges (heaps) in which no stack of an exited thread is looked for; every other anonymous
    writable mapping is read once.
    """
    space, many = _Space(target), stacks.ManyThreads(target)
    found = [live for thread in target.threads() if (live := _live(target, thread, space, many.unwind)) is not None]
    tcbs = _tcbs(target, found, skip, space)
    # qemu-user's dumps hold no thread pointer: then the thread is the one whose sp lies in the stack.
    below = sorted((start, end, tcb) for tcb, (start, end) in tcbs.items())

    def placed(stack: ThreadStack) -> ThreadStack:
        if stack.tcb is not None or stack.sp is None:
            return stack
        index = bisect_right(below, (stack.sp, _TOP, _TOP)) - 1
        if index < 0 or stack.sp >= below[index][1]:
            return stack
        start, end, tcb = below[index]
        return ThreadStack(stack.tid, start, end, stack.sp, tcb)

    found = [placed(stack) for stack in found]
    return found + _others(target, found, tcbs)


def stack_of(target: Target, thread: Thread) -> Optional[ThreadStack]:
    """The stack that the thread was started on, whichever it runs on now. None if no memory near its sp is known."""
    return _live(target, thread, _Space(target), partial(stacks.unwind, target))


class LiveStacks:
    """The stacks of one thread after the other: see ``live_stacks``."""

    def __init__(self, target: Target) -> None:
        self._target, self._space, self._many = target, _Space(target), stacks.ManyThreads(target)

    @property
    def tired(self) -> bool:
        """So much was unwound that nothing is known of the threads that follow."""
        return self._many.tired

    def of(self, thread: Thread) -> list[LiveStack]:
        frames = self._many.unwind(thread)
        return _live_stacks(self._target, thread, frames, self._space)


def live_stacks(target: Target, thread: Thread) -> list[LiveStack]:
    """The stacks that the thread was using: the one it ran on, and those it left for an alternate signal stack."""
    return LiveStacks(target).of(thread)


def _live_stacks(target: Target, thread: Thread, frames: list[stacks.Frame], space: _Space) -> list[LiveStack]:
    if not frames:
        return []
    own = _live(target, thread, space, lambda _thread: frames)
    found: list[LiveStack] = []
    for index, frame in enumerate(frames):
        interrupted = index > 0 and frames[index - 1].trampoline
        if index and not interrupted:
            continue
        if any(stack.start <= frame.sp < stack.end for stack in found):
            continue  # the signal was handled on the stack that it interrupted
        start = frame.sp - (target.arch.red_zone if interrupted else 0)
        alternate = _alternate_stack(target, frames[index:], frame.sp)
        if alternate is not None:
            found.append(LiveStack(max(start, alternate[0]), alternate[1], "alternate signal stack"))
            continue
        on_own = own is not None and own.start <= frame.sp < own.end
        holder = own if on_own else space.at(frame.sp)
        if holder is not None:
            found.append(LiveStack(start, holder.end, "interrupted by a signal" if interrupted else "running"))
    if own is not None and own.tcb is not None and not any(own.start <= stack.start < own.end for stack in found):
        # It runs on a stack of the program's own (or unwinding did not get out of a handler's): where it left the one
        # that it was started on is not known, so nothing of that is dead.
        found.append(LiveStack(own.start, own.end, "all of it: where the thread left it is not known"))
    return found


def find(target: Target, text: Optional[str]) -> Thread:
    """The thread a user means: by tid, by ``pthread_t``, by name; None: the one that died. Raises UsageError."""
    threads = target.threads()
    if not threads:
        raise UserError("the dump holds no thread", "its NT_PRSTATUS notes are missing: take another dump")
    if text is None:
        return threads[0]
    number = int(text, 0) if re.fullmatch(r"0[xX][0-9a-fA-F]+|[1-9][0-9]*", text) else None
    pointer = target.arch.thread_pointer
    found = [t for t in threads if number is not None and number in (t.tid, t.registers.get(pointer))]
    found = found or [t for t in threads if t.name == text]
    if len(found) != 1:
        known = ", ".join(str(t.tid) for t in (found or threads)[:8]) + (", ..." if len(found or threads) > 8 else "")
        what = f"{len(found)} threads have the name {text!r}" if found else f"no thread is {text!r}"
        raise UsageError(what, f"name one by its tid: {known}")
    return found[0]


def _alternate_stack(target: Target, frames: Iterable[stacks.Frame], sp: int) -> Optional[tuple[int, int]]:
    """The alternate signal stack that holds ``sp``: the kernel writes its bounds into each signal frame (uc_stack)."""
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


class _Space:
    """The mappings, found by address: there may be a million of them."""

    def __init__(self, target: Target) -> None:
        self.mappings = target.mappings()
        self._starts = firsts(self.mappings)

    def at(self, address: int) -> Optional[AddressRange]:
        index = bisect_right(self._starts, address) - 1
        return self.mappings[index] if index >= 0 and address in self.mappings[index] else None

    def just_above(self, address: int) -> Optional[AddressRange]:
        """The mapping that an overflown stack pointer has left, at most a megabyte below it."""
        first = bisect_right(self._starts, address)
        near = takewhile(lambda m: m.start - address <= 1 << 20, islice(self.mappings, first, None))
        return next((mapping for mapping in near if "w" in mapping.flags), None)


def _live(
    target: Target, thread: Thread, space: _Space, unwind: Callable[[Thread], list[stacks.Frame]]
) -> Optional[ThreadStack]:
    sp = thread.registers.get(target.arch.sp)
    if sp is None:
        return None
    tcb = thread.registers.get(target.arch.thread_pointer) if target.arch.thread_pointer else None
    if tcb is not None and not _is_tcb(target, tcb):
        tcb = None
    if tcb is not None:
        bounds = _stack_block(target, tcb, space)
        if bounds is not None:
            return ThreadStack(thread.tid, *bounds, sp, tcb)
    # The main thread: the kernel made its stack, and glibc does not know where it begins. Its outermost frame lies
    # there even where it runs on an alternate signal stack. (In a damaged dump the outermost may lie nowhere.)
    places = (space.at(sp) for sp in (*(frame.sp for frame in reversed(unwind(thread))), sp))
    mapping = next(filter(None, places), None) or space.just_above(sp)
    return ThreadStack(thread.tid, mapping.start, mapping.end, sp, tcb) if mapping else None


def _is_tcb(target: Target, tcb: int) -> bool:
    """x86: ``tcbhead_t.tcb`` and ``.self`` point to the TCB. AArch64 has no such word: any readable address will do."""
    word = target.arch.word
    try:
        data = target.read(tcb, 3 * word)
    except FaultError:
        return False
    if not target.arch.tcb_is_pthread:
        return True
    first, _dtv, itself = struct.unpack("<QQQ" if word == 8 else "<III", data)
    return bool(first == tcb == itself)


def _stack_block(target: Target, tcb: int, space: _Space, mapped_only: bool = False) -> Optional[tuple[int, int]]:
    """``stackblock`` and ``stackblock_size`` of ``struct pthread``: two words whose values no other two have.

    They and ``guardsize`` stand together in every glibc so far (nptl/descr.h), at an offset that differs. On x86 the
    TCB is the beginning of struct pthread; on AArch64 (TLS variant I) struct pthread ends where the TCB begins.
    ``mapped_only``: not the stacks that a program allocated itself (pthread_attr_setstack); those may lie anywhere.
    """
    word = target.arch.word
    start = tcb if target.arch.tcb_is_pthread else tcb - _PTHREAD_MAX
    data = target.image().read(start, _PTHREAD_MAX)
    words = struct.unpack(f"<{len(data) // word}{'Q' if word == 8 else 'I'}", data[: len(data) // word * word])
    mapping = space.at(tcb)
    # Above the guard the stack is one mapping, which may go on beyond it: other words that look like these three do
    # not fit.
    triples = [
        (block, block + size)
        for block, size, guard in zip(words, words[1:], words[2:])
        if size >= _STACK_MIN and 0 < block <= tcb < block + size and guard < size and guard % _PAGE == 0
        if mapping is not None and mapping.start <= block + guard and block + size <= mapping.end
    ]
    aligned = [(a, b) for a, b in triples if a % _PAGE == 0 and b % _PAGE == 0]
    if aligned:
        return aligned[0]
    # A stack in memory of the program's own lies within one mapping, whatever it says of a guard.
    inside = [(a, b) for a, b in triples if mapping is not None and mapping.start <= a]
    return inside[0] if inside and not mapped_only else None


def _tcbs(
    target: Target, live: Sequence[ThreadStack], skip: Sequence[tuple[int, int]], space: _Space
) -> dict[int, tuple[int, int]]:
    """Thread control blocks that no register leads to, with the bounds of their stacks. Those of x86 point to
    themselves; AArch64's lead to a dtv."""
    known = {stack.tcb for stack in live}
    ranges = Ranges(skip).without((m.start, m.end) for m in target.mappings() if _may_hold_stacks(m))
    if target.arch.tcb_is_pthread:
        found = find_self_pointers(target.image(), ranges, target.arch.word)
    else:
        found = find_dtv_pointers(target.image(), ranges)
    bounds = {tcb: _stack_block(target, tcb, space, mapped_only=True) for tcb in found if tcb not in known}
    return {tcb: at for tcb, at in bounds.items() if at is not None}


def _others(target: Target, live: Sequence[ThreadStack], tcbs: Mapping[int, tuple[int, int]]) -> list[ThreadStack]:
    """Stacks that belong to no thread of the dump."""
    tid_offset = _tid_offset(target, live)
    if tid_offset is None and sum(stack.tcb is None for stack in live) > 1:
        return []  # one of them may be a thread's that runs elsewhere: on an alternate signal stack
    found = []
    taken = Ranges((stack.start, stack.end) for stack in live)
    for tcb, bounds in tcbs.items():
        if taken.within(*bounds):
            continue
        # The kernel clears tid when a thread exits (CLONE_CHILD_CLEARTID). One that is not 0 is a thread that the dump
        # has no registers of.
        tid = 0 if tid_offset is None else _int32(target, tcb + tid_offset)
        found.append(ThreadStack(tid if tid > 0 else None, *bounds, None, tcb))
    return sorted(found, key=lambda stack: stack.start)


def _may_hold_stacks(mapping: AddressRange) -> bool:
    return mapping.path is None and "w" in mapping.flags


def _tid_offset(target: Target, live: Sequence[ThreadStack]) -> Optional[int]:
    """Where ``struct pthread`` keeps the tid, as a distance from the TCB: the one at which every live thread's is
    found."""
    first = 0 if target.arch.tcb_is_pthread else -_PTHREAD_MAX
    common: Optional[set[int]] = None
    for stack in live[:64]:
        if stack.tcb is None or stack.tid is None:
            continue
        data = target.image().read(stack.tcb + first, _PTHREAD_MAX)
        values = struct.unpack(f"<{len(data) // 4}i", data[: len(data) // 4 * 4])
        here = {first + 4 * index for index, value in enumerate(values) if value == stack.tid}
        common = here if common is None else common & here
    return min(common) if common else None


def _int32(target: Target, address: int) -> int:
    data = target.image().read(address, 4)
    return int.from_bytes(data, "little", signed=True) if len(data) == 4 else 0
