"""Threads that ended and were not joined, and whether anybody can still join them."""

from __future__ import annotations

from collections.abc import Sequence

from dmods.base.cached import cached
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.live_words import LiveWords
from dmods.process.ended_threads import EndedThread, unjoined_threads
from dmods.process.stack_bounds import pthread_reach
from dmods.process.threads import ThreadStack, stacks_of
from dmods.target import Target

_FEW = 64  # pointers to a struct pthread that are looked at
_LIBC = ("libc.", "libc-", "ld-", "ld.", "libpthread")  # libc lists the threads itself


class Unjoined(NamedTuple):
    """A thread that ended and was not joined. ``held``: something still has its pthread_t."""

    thread: EndedThread
    held: bool

    @property
    def size(self) -> int:
        """Return the bytes of its stack."""
        return self.thread.stack.end - self.thread.stack.start


class UnjoinedThreads(NamedTuple):
    """The threads by address. ``joining``: a thread is in pthread_join()."""

    threads: list[Unjoined]
    joining: bool


@cached
def find_unjoined(target: Target) -> UnjoinedThreads:
    """Return the threads that ended and were not joined."""
    heap = find_heap(target)
    stacks = stacks_of(target, list(heap.owned))
    found = unjoined_threads(target, stacks)
    held = _held(heap, found.threads, stacks) if found.threads else set()
    return UnjoinedThreads([Unjoined(each, each.stack.start in held) for each in found.threads], found.joining)


def _held(heap: ProcessHeap, ended: Sequence[EndedThread], stacks: Sequence[ThreadStack]) -> set[int]:
    """Return where the stacks begin of the threads whose pthread_t a live word has.

    The words of libc's own records do not count: each struct pthread, and libc's data, which has the list of threads.
    """
    target = heap.target
    records: list[tuple[int, int]] = []
    for stack in stacks:
        if stack.tcb is not None:
            reach = pthread_reach(target, stack.tcb)
            records.append(
                (stack.tcb, stack.tcb + reach) if target.arch.tcb_is_pthread else (stack.tcb - reach, stack.tcb)
            )
    libc = [(each.start, each.end) for each in target.modules() if each.name.startswith(_LIBC)]
    own = [(each.stack.start, each.stack.end) for each in ended]
    words = LiveWords(heap, Ranges(sorted([*records, *libc, *own])))
    wanted = Ranges(sorted(_handle(target, each.stack) for each in ended))
    by_start = {_handle(target, each.stack)[0]: each.stack.start for each in ended}
    held = {start for value in words.values if (part := wanted.range_at(value)) for start in [by_start[part[0]]]}
    for (low, _high), places in zip(wanted, words.pointers(words.memory, list(wanted), _FEW)):
        if any(at in words for at in places):
            held.add(by_start[low])
    return held


def _handle(target: Target, stack: ThreadStack) -> tuple[int, int]:
    """Return the values that mean the thread's pthread_t: the address of its struct pthread.

    Where that lies below the TCB, its size is not known, so all addresses in it count.
    """
    tcb = stack.tcb or 0
    return (tcb, tcb + 1) if target.arch.tcb_is_pthread else (tcb - pthread_reach(target, tcb), tcb + 1)
