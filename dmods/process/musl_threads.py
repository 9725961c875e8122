"""musl's ``struct pthread`` and the stack that it describes (src/internal/pthread_impl.h).

The structure begins with a pointer to itself. On x86 the dtv follows, then the previous and the next thread: all
threads are in a ring. A thread that has exited is alone in its ring until it is joined.
"""

from __future__ import annotations

from typing import Optional

from dmods.base.words import Words
from dmods.process.mappings import anonymous_memory
from dmods.target import Arch, Target

_PAGE = 4096
# Bytes below the thread pointer in which the structure begins where TLS lies above. It has 0xc8 to 0xd0.
_BELOW = 512
MOST_WORDS = 30  # of the structure; it has 26 to 28
_FIELDS = 40  # words of the structure in which the stack's fields are


def pthread_at(words: Words, arch: Arch, thread_pointer: int) -> Optional[int]:
    """Return the address of musl's ``struct pthread`` of that thread pointer, or None: it is another libc's."""
    if arch.tcb_is_pthread:
        return thread_pointer if _is_pthread(words, thread_pointer, 2) else None
    start = thread_pointer - _BELOW
    values = words.many(start, _BELOW // words.size) if start > 0 else None
    for index, value in enumerate(values or ()):
        at = start + index * words.size
        if value == at and _is_pthread(words, at, 1):
            return at
    return None


def _is_pthread(words: Words, at: int, previous: int) -> bool:
    """Return whether the structure begins there. ``previous`` is the number of the word that leads to another one.

    In the child of a fork the ring holds threads of the parent, which do not lead back.
    """
    fields = words.many(at, previous + 2)
    if fields is None or fields[0] != at:
        return False
    before, after = fields[previous], fields[previous + 1]
    return before not in (0, words.mask) and words.at(before) == before and words.at(after) == after


def dtv_blocks(words: Words, arch: Arch, thread_pointer: int, most: int) -> list[int]:
    """Return where the TLS blocks of the thread's modules begin: the dtv is their number and then their addresses.

    The dtv is the second word of the structure on x86, and its last one where TLS lies above.
    """
    dtv = words.at(thread_pointer + (words.size if arch.tcb_is_pthread else -words.size))
    count = words.at(dtv) if dtv else None
    if not dtv or count is None or not 0 < count <= most:
        return []
    return [value for value in words.many(dtv + words.size, count) or () if value]


def stack_block(target: Target, pthread: int, mapped_only: bool = False) -> Optional[tuple[int, int]]:
    """Return the bounds of the thread's stack. None: the kernel made it, or it is not described.

    ``map_base``, ``map_size``, ``stack`` (where the stack ends), ``stack_size`` and ``guard_size`` are neighbours.
    Their offset depends on the release, so they are found by their values. The structure and TLS lie above the stack in
    one mapping. Where the program gave the stack, they lie on it (there is no mapping) or in a mapping of their own.
    ``mapped_only`` leaves out stacks that the program gave.
    """
    found = _described(target, pthread, mapped_only)
    return found[:2] if found is not None else None


def stack_top(target: Target, pthread: int) -> Optional[int]:
    """Return where the stack of a thread ends that musl mapped, below TLS, or None."""
    found = _described(target, pthread, True)
    return found[2] if found is not None else None


def _described(target: Target, pthread: int, mapped_only: bool) -> Optional[tuple[int, int, int]]:
    """Return the bounds of the thread's stack, and ``stack``."""
    word = target.arch.word
    data = target.image().read(pthread, _FIELDS * word)  # the mapping may end right behind the structure
    values = memoryview(data[: len(data) // word * word]).cast("Q" if word == 8 else "I")
    for base, size, stack, stack_size, guard in zip(values, values[1:], values[2:], values[3:], values[4:]):
        low, inside = stack - stack_size, base <= pthread < base + size
        if not (0 < stack_size < stack and size > 0) or base % _PAGE or guard % _PAGE or (base and size % _PAGE):
            continue
        memory = anonymous_memory(target).range_at(low)
        if memory is None or stack > memory[1]:
            continue
        if base and inside and low == base + guard and stack <= pthread:
            return base, base + size, stack
        if mapped_only or guard:
            continue
        if base and inside and not base <= stack <= base + size:
            return low, stack, stack
        if not base and stack <= pthread < low + size <= memory[1]:
            return low, low + size, stack
    return None
