"""Threads that have ended, by libc's own records: those that nobody joined, and the first one. No debug information is
needed.

libc keeps the stack of such a thread, with its ``struct pthread``, until pthread_join(3) or pthread_detach(3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words
from dmods.process import glibc_tid, musl_threads
from dmods.process.mappings import mapping_at
from dmods.process.stack_bounds import STRUCT_PTHREAD_MAX, first_stack, musl_pthread, pthread_reach
from dmods.process.threads import ThreadStack, ThreadSurvey, tid_offset
from dmods.target import Target

# Words from start_routine to stackblock in glibc's struct pthread (nptl/descr.h): start_routine, arg, eventbuf,
# nextevent, and an _Unwind_Exception, which is aligned to 16 bytes.
_BELOW_BLOCK = {8: range(11, 9, -1), 4: range(18, 13, -1)}
_JOINSTATE = 3  # words from joinstate, which glibc has since 2.43, to start_routine
# Words of musl's struct start_args, which lies at the top of the stack: start_func, start_arg, control, and the mask of
# signals (src/thread/pthread_create.c, _NSIG is 65).
_START_ARGS = {8: 4, 4: 5}
_ASKED = 64  # threads that tell where start_routine is


class EndedThread(NamedTuple):
    """A thread that ended and was not joined. ``start`` is the function that it ran, or None where it is not known."""

    stack: ThreadStack
    start: Optional[int]


class EndedThreads(NamedTuple):
    """The ended threads by address. ``joining``: a thread waits for another one to end."""

    threads: list[EndedThread]
    joining: bool


def unjoined_threads(target: Target, stacks: Sequence[ThreadStack]) -> EndedThreads:
    """Return the threads among the stacks (see ``stacks_of``) that ended and were not joined."""
    words = Words(target.image(), target.arch.word)
    made = [stack for stack in stacks if stack.tcb is not None]
    ended = [stack for stack in made if stack.sp is None and stack.tid is None]
    glibc = [stack for stack in made if musl_pthread(target, stack.tcb or 0) is None]
    at = tid_offset(target, glibc) if glibc and ended else None
    joinable = [stack for stack in ended if _is_kept(words, stack, glibc, at)]
    starts = _start_offset(target, words, [stack for stack in glibc if stack in joinable or stack.sp is not None])
    found = [EndedThread(stack, _start(target, words, stack, starts)) for stack in joinable]
    state = starts - _JOINSTATE * words.size if starts is not None else None
    joining = bool(found) and _is_joining(target, made, (at, state))
    return EndedThreads(found, joining)


def ended_first_stack(target: Target, survey: ThreadSurvey) -> Optional[tuple[int, int]]:
    """Return the frames of the first thread's stack if that thread has ended (pthread_exit in main), or None.

    Its arguments and environment, from argc on, are still in use. glibc knows where they begin: it keeps the address as
    the ``stackblock_size`` of the first thread, which has no ``stackblock`` (sysdeps/nptl/dl_tls_init_tp.c of 2.34 and
    later; nptl/nptl-init.c before).
    """
    first, sp = first_stack(target), target.arch.sp
    threads = target.threads()
    if first is None or any(t.tid == target.pid or first[0] <= t.registers.get(sp, 0) < first[1] for t in threads):
        return None
    words = Words(target.image(), target.arch.word)
    at = tid_offset(target, survey.stacks)
    if at is None or not threads:
        return None
    for tcb in survey.other_pointers:
        start = tcb if target.arch.tcb_is_pthread else tcb - STRUCT_PTHREAD_MAX
        fields = words.many(start, STRUCT_PTHREAD_MAX // words.size) or ()
        end = next((top for none, top in zip(fields, fields[1:]) if none == 0 and first[0] < top < first[1]), None)
        if end is not None:
            ending = glibc_tid.ending(words, tcb, at)
            has_ended = words.int32(tcb + at) == 0 or (ending is not None and ending.exiting)
            return (first[0], end) if has_ended else None
    return None


def _is_kept(words: Words, stack: ThreadStack, glibc: Sequence[ThreadStack], at: Optional[int]) -> bool:
    """Return whether the thread ended and was not joined. musl unmaps the stacks of all others."""
    if stack not in glibc:
        return True
    ending = glibc_tid.ending(words, stack.tcb or 0, at) if at is not None else None
    return ending is not None and ending.exiting and not ending.freed


def _fields(target: Target, words: Words, tcb: int) -> tuple[int, Sequence[int]]:
    """Return the words of glibc's struct pthread, and the offset of the first of them from the TCB."""
    first = 0 if target.arch.tcb_is_pthread else -STRUCT_PTHREAD_MAX
    there = len(words.image.read(tcb + first, STRUCT_PTHREAD_MAX)) // words.size
    return first, words.many(tcb + first, there) or ()


def _start_offset(target: Target, words: Words, stacks: Sequence[ThreadStack]) -> Optional[int]:
    """Return the offset of ``start_routine`` from the TCB: where every thread has the address of code."""
    common: Optional[set[int]] = None
    for stack in stacks[:_ASKED]:
        if stack.tcb is None or not stack.start <= stack.tcb < stack.end:
            continue  # the first thread has no such function
        first, fields = _fields(target, words, stack.tcb)
        block = stack.start, stack.end - stack.start  # stackblock and stackblock_size
        blocks = [n for n, pair in enumerate(zip(fields, fields[1:])) if pair == block]
        if not blocks:
            continue  # other memory follows the stack in its mapping: it tells nothing
        here = {
            first + (block - below) * words.size
            for block in blocks
            for below in _BELOW_BLOCK[words.size]
            if block >= below and _is_code(target, fields[block - below])
        }
        common = here if common is None else common & here
    return min(common) if common else None


def _start(target: Target, words: Words, stack: ThreadStack, offset: Optional[int]) -> Optional[int]:
    musl = musl_pthread(target, stack.tcb or 0)
    if musl is not None:
        top = musl_threads.stack_top(target, musl)
        start = words.at(top - _START_ARGS[words.size] * words.size) if top is not None else None
        return start if start is not None and _is_code(target, start) else None
    return words.at((stack.tcb or 0) + offset) if offset is not None else None


def _is_joining(target: Target, stacks: Sequence[ThreadStack], offsets: Sequence[Optional[int]]) -> bool:
    """Return whether a thread waits in pthread_join(): the kernel has the address of a word of another thread.

    That is glibc's tid or joinstate, which the kernel clears as the thread ends, or musl's detach_state. Its address is
    in a register of the thread that made the system call (futex(2)).
    """
    values = {value for thread in target.threads() for value in thread.registers.values()}
    for stack in stacks:
        tcb = stack.tcb or 0
        musl = musl_pthread(target, tcb)
        if musl is not None:
            words = range(musl + target.arch.word, musl + pthread_reach(target, tcb), 4)
            if any(value in words for value in values):
                return True
        elif any(offset is not None and tcb + offset in values for offset in offsets):
            return True
    return False


def _is_code(target: Target, address: int) -> bool:
    mapping = mapping_at(target, address)
    return mapping is not None and "x" in mapping.flags
