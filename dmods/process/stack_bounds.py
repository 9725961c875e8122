"""The bounds of stacks that libc or the kernel made. No debug information is needed.

mlock(2), madvise(2) and mprotect(2) on a part of a stack split its mapping. Then the stack is all of the pieces.
"""

from __future__ import annotations

import struct
from typing import Optional

from dmods.base.cached import cached
from dmods.base.rows import at_or_before
from dmods.base.words import Words
from dmods.errors import FaultError
from dmods.modules.auxv import AT_EXECFN, AT_RANDOM
from dmods.process import musl_threads
from dmods.process.mappings import anonymous_memory, mapping_at
from dmods.target import AddressRange, Target, Thread

_PAGE = 4096
_STACK_MIN = 16384  # PTHREAD_STACK_MIN of x86; arm64's is larger
# At least sizeof(struct pthread), which is 2304 in glibc 2.31 to 2.41 on x86-64.
STRUCT_PTHREAD_MAX = 0xC00

Bounds = tuple[int, int]  # start, end


@cached
def first_stack(target: Target) -> Optional[Bounds]:
    """Return the stack that the kernel made for the first thread, or None where the dump does not show it.

    At its top the kernel writes random bytes and the name of the program (fs/binfmt_elf.c, create_elf_tables). Nothing
    that can be written lies above, and a gap below (mm/mmap.c, stack_guard_gap). qemu-user puts the stack among other
    memory, above a guard.
    """
    at = target.auxv.get(AT_RANDOM) or target.auxv.get(AT_EXECFN) or 0
    mappings = target.mappings()
    low = high = at_or_before(mappings, at)
    if low < 0 or at not in mappings[low] or mappings[low].path is not None:
        return None
    while high + 1 < len(mappings) and _touch(mappings[high], mappings[high + 1]) and "w" in mappings[high + 1].flags:
        high += 1
    is_highest = not any("w" in mappings[index].flags for index in range(high + 1, len(mappings)))
    while low > 0 and _touch(mappings[low - 1], mappings[low]) and (is_highest or "w" in mappings[low - 1].flags):
        low -= 1
    return mappings[low].start, mappings[high].end


def _touch(below: AddressRange, above: AddressRange) -> bool:
    return below.end == above.start and below.path is None and above.path is None


def known_stack(target: Target, thread: Thread) -> Optional[Bounds]:
    """Return the bounds of the stack that the thread's sp lies in, if glibc or the kernel knows them."""
    sp = thread.registers.get(target.arch.sp, 0)
    tcb = thread.registers.get(target.arch.thread_pointer) if target.arch.thread_pointer else None
    made = stack_block(target, tcb) if tcb is not None and is_tcb(target, tcb) else None
    return next((each for each in (made, first_stack(target)) if each is not None and each[0] <= sp < each[1]), None)


def is_tcb(target: Target, tcb: int) -> bool:
    """Return whether a TCB can be at the address.

    On x86, ``tcbhead_t.tcb`` and ``.self`` point to the TCB itself. AArch64 has no such word: any readable address may
    be a TCB.
    """
    word = target.arch.word
    try:
        data = target.read(tcb, 3 * word)
    except FaultError:
        return False
    if not target.arch.tcb_is_pthread:
        return True
    first, _dtv, itself = struct.unpack("<QQQ" if word == 8 else "<III", data)
    return bool(first == tcb == itself) or musl_pthread(target, tcb) is not None


def musl_pthread(target: Target, tcb: int) -> Optional[int]:
    """Return where musl's ``struct pthread`` begins if the thread pointer leads to one, or None."""
    return musl_threads.pthread_at(Words(target.image(), target.arch.word), target.arch, tcb)


def pthread_reach(target: Target, tcb: int) -> int:
    """Return how many bytes ``struct pthread`` may have there: behind the TCB on x86, before it elsewhere."""
    musl = musl_pthread(target, tcb) is not None
    return musl_threads.MOST_WORDS * target.arch.word if musl else STRUCT_PTHREAD_MAX


def stack_block(target: Target, tcb: int, mapped_only: bool = False) -> Optional[tuple[int, int]]:
    """Return the bounds of the stack, from ``stackblock`` and ``stackblock_size`` of ``struct pthread``.

    In every glibc so far these two words and ``guardsize`` are neighbours (nptl/descr.h). Their offset differs, so the
    words are found by their values. On x86 the TCB is the beginning of struct pthread. On AArch64 (TLS variant I)
    struct pthread ends where the TCB begins. ``mapped_only`` leaves out stacks that a program allocated itself
    (pthread_attr_setstack): they may lie anywhere. musl's structure is another one.
    """
    musl = musl_pthread(target, tcb)
    if musl is not None:
        return musl_threads.stack_block(target, musl, mapped_only)
    word = target.arch.word
    start = tcb if target.arch.tcb_is_pthread else tcb - STRUCT_PTHREAD_MAX
    data = target.image().read(start, STRUCT_PTHREAD_MAX)
    words = struct.unpack(f"<{len(data) // word}{'Q' if word == 8 else 'I'}", data[: len(data) // word * word])
    triples = [
        (block, block + size, guard)
        for block, size, guard in zip(words, words[1:], words[2:])
        if size >= _STACK_MIN and 0 < block <= tcb < block + size and guard < size and guard % _PAGE == 0
    ]
    mapping = mapping_at(target, tcb) if triples else None
    if mapping is None:
        return None
    # The memory above the guard may be longer than the stack. These conditions reject other words that look like these
    # three. A piece of the stack is the last resort: it rejects the fewest.
    for low, high in ((mapping.start, mapping.end), anonymous_memory(target).range_at(tcb) or (tcb, tcb)):
        inside = [(start, end, guard) for start, end, guard in triples if low <= start + guard and end <= high]
        aligned = [(start, end) for start, end, _guard in inside if start % _PAGE == 0 and end % _PAGE == 0]
        if aligned:
            return aligned[0]
        # A stack that the program allocated lies within one mapping. Its guard size means nothing.
        given = [(start, end) for start, end, _guard in inside if low <= start]
        if given and not mapped_only:
            return given[0]
    return None
