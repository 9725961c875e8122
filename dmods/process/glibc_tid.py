"""Where glibc keeps a thread's tid in its struct pthread, and how far the thread has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words
from dmods.target import Arch

_MOST_THREADS = 64
_MOST_BETWEEN = 3  # words between the tid and robust_head
_TO_STATE = 5  # words: those of robust_head, cleanup, cleanup_jmp_buf
# Bits of pthread.cancelhandling (nptl/descr.h). The thread's function has returned, or the thread was cancelled.
_EXITING = 1 << 4
# Its struct pthread is free: it was joined, or it was detached.
_TERMINATED = 1 << 5


def tid_offset(words: Words, arch: Arch, tcbs: Iterable[int], size: int) -> Optional[int]:
    """Return the offset of the tid from a TCB, or None where it is not known. ``size`` is that of struct pthread.

    ``tid`` follows ``list`` (nptl/descr.h), which links all threads in a ring. So a ring is searched for. Some threads
    do not have the tid of the dump: the child of vfork(2) sees its parent's struct pthread, and gdb writes other tids
    than those of a container. Then their values do not lead to the tid.
    """
    first = 0 if arch.tcb_is_pthread else -size
    votes: Counter[int] = Counter()
    for tcb in islice(tcbs, _MOST_THREADS):
        if tcb + first < 0:
            continue
        there = len(words.image.read(tcb + first, size)) // words.size
        data = words.many(tcb + first, there) or ()
        for index, (after, before) in enumerate(zip(data, data[1:])):
            at = tcb + first + index * words.size
            if after in (0, at) or (after | before) % words.size:
                continue
            if words.at(before) == at and words.at(after + words.size) == at:
                votes[first + (index + 2) * words.size] += 1
    return max(votes, key=lambda offset: (votes[offset], -offset)) if votes else None


class Ending(NamedTuple):
    """The end of a thread. ``exiting``: its function has returned. ``freed``: and it was joined or detached."""

    exiting: bool
    freed: bool


def ending(words: Words, tcb: int, tid: int) -> Optional[Ending]:
    """Return how far a thread has ended; None: its struct pthread is not in the dump. ``tid``: the offset of the tid.

    ``cancelhandling`` follows robust_head and two pointers in every glibc from 2.31 to 2.43. A few words lie between
    the tid and robust_head, whose first word leads to itself while the thread holds no robust mutex. Since 2.43 the
    kernel no longer clears the tid of a thread that ends (CLONE_CHILD_CLEARTID names joinstate).
    """
    places = (tcb + tid + 4 + words.size * index + (words.size - 4) for index in range(_MOST_BETWEEN))
    head = next((at for at in places if words.at(at) == at), None)
    value = words.int32(head + _TO_STATE * words.size) if head is not None else None
    return Ending(bool(value & _EXITING), bool(value & _TERMINATED)) if value is not None else None
