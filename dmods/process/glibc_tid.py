"""Where glibc keeps a thread's tid in its struct pthread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Optional

from dmods.base.words import Words
from dmods.target import Arch

_MOST_THREADS = 64


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
