"""The changes that malloc had begun when it ended the process. They are no damage.

free() and malloc() look at some lists only after they have changed others (malloc.c, 2.31 to 2.44):

- free() unlinks the free chunk before the block, and the free chunk behind it. If the chunk behind is in use, free()
  clears its PREV_INUSE, and writes prev_size only at the end. In between it looks at the list that the block shall go
  to (_int_free; _int_free_create_chunk since 2.41).
- malloc() takes a chunk from its bin, and then looks at the list for the rest of it; or at the large bin that the
  chunk shall go to (_int_malloc).
- unlink_chunk() takes a chunk from its bin, and then looks at its second list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from dmods.allocators.glibc.bins import Problem
from dmods.allocators.protocol import Process
from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words
from dmods.process import signals
from dmods.process.abort_message import abort_message
from dmods.process.addresses import module_at
from dmods.process.released import released
from dmods.process.threads import find_thread
from dmods.process.unwind import Frame, unwind
from dmods.target import Target

Anomaly = tuple[
    str, int, int, int, int
]  # of RunReport: fault, chunk, value, chunk before, where chunks are valid again
_CLEARED = re.compile(r"free\(\): (corrupted unsorted chunks|chunks in smallbin corrupted)")
_UNLINKED = re.compile(
    r"corrupted (double-linked list|size vs\. prev_size)|largebin double linked|malloc\(\): corrupted unsorted chunks"
)
_LARGE = 1024  # MIN_LARGE_SIZE of 64-bit ports
_REACH = 1 << 10  # bytes of the stack that the frames from malloc to the end take (800 in 2.44)
_MOST_FRAMES = 16


class HalfDone(NamedTuple):
    """The changes that a thread had begun when it ended inside malloc. ``cleared``: it may have cleared a PREV_INUSE.

    ``pointer`` is the block that it was freeing, where that is known. ``held`` are the words that its frames hold.
    """

    cleared: bool
    pointer: Optional[int]
    held: frozenset[int]

    def explains_header(self, anomaly: Anomaly, word: int) -> bool:
        """Return whether free() had cleared the flag of a chunk that lies behind the block that it was freeing."""
        fault, chunk, _value, before, _resumed = anomaly
        if fault != "prev_size" or not self.cleared:
            return False
        block = before + 2 * word
        return block == self.pointer if self.pointer is not None else bool({before, block, chunk} & self.held)

    def explains_link(self, problem: Problem, word: int) -> bool:
        """Return whether the chunk is on no list because it was just taken from one."""
        chunk = problem.address
        near = {chunk, chunk + 2 * word, chunk + problem.value}
        return problem.fault == "unlisted" and bool(near & self.held)

    def without(self, problems: Sequence[Problem], words: Words) -> list[Problem]:
        """Return the problems of bins that malloc did not make itself, and a broken ring of the chunk that it took."""
        kept: list[Problem] = []
        for each in problems:
            if not self.explains_link(each, words.size):
                kept.append(each)
            elif (ring := _broken_ring(words, each)) is not None:
                kept.append(ring)
        return kept


NOTHING = HalfDone(False, None, frozenset())


def half_done(process: Process, mains: Sequence[int]) -> HalfDone:
    """Return what malloc had begun when it ended the process, by its message or by the instruction that trapped.

    ``mains`` are the addresses of the main arenas: they lie in the module that malloc's code is in.
    """
    target, words = process.target, process.words
    if not target.threads():
        return NOTHING
    thread = find_thread(target, None)
    pc, sp = (thread.registers.get(name, 0) for name in (target.arch.pc, target.arch.sp))
    trapped = thread.signal is not None and signals.is_fault(thread.signal) and _in_malloc(target, pc, mains)
    message = "" if trapped else abort_message(target, True) or ""
    cleared = trapped or _CLEARED.search(message) is not None
    if not cleared and not _UNLINKED.search(message):
        return NOTHING
    pointer = _pointer(target, unwind(target, thread))
    if trapped and pointer is None:
        return NOTHING
    stack = words.many(sp, _REACH // words.size) or ()
    freed = (pointer, pointer - 2 * words.size) if pointer is not None else ()
    return HalfDone(cleared, pointer, frozenset((*stack, *thread.registers.values(), *freed)))


def _pointer(target: Target, frames: Sequence[Frame]) -> Optional[int]:
    """Return the block that the thread was freeing, where the code of a frame near the end proves it."""
    return released(target, frames, min(len(frames), _MOST_FRAMES) - 1)[1]


def _broken_ring(words: Words, taken: Problem) -> Optional[Problem]:
    """Return the problem of a large chunk that unlink_chunk took from its bin, and whose second list is broken.

    fd_nextsize and bk_nextsize are the fifth and the sixth word of a chunk; 0 where another chunk has its size.
    """
    chunk, word = taken.address, words.size
    links = words.many(chunk + 4 * word, 2) if taken.value >= _LARGE * word // 8 else None
    if links is None or not links[0]:
        return None
    if words.at(links[0] + 5 * word) == chunk == words.at(links[1] + 4 * word):
        return None
    text = f"its ring of sizes leads to {links[0]:#x} and {links[1]:#x}, and not back"
    return Problem(taken.arena, "large bins", chunk, text, "size ring", links[0])


def _in_malloc(target: Target, pc: int, mains: Sequence[int]) -> bool:
    """Return whether the code is of a module that has a main arena of malloc."""
    module = module_at(target, pc)
    return module is not None and any(module.start <= main < module.end for main in mains)
