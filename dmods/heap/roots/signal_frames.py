"""Pointers in signal frames that stand there in another form: integers in the x87 unit.

The kernel saves the vector and floating-point registers above a signal frame, as an XSAVE area. That memory lies on a
stack in use, so its words are roots like all others. Only an integer that went through the x87 unit has no word of its
own there.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from dmods._engine import find_pointers
from dmods.allocators.search import above_stack_pointers
from dmods.base.cached import cached
from dmods.base.ranges import Ranges
from dmods.process.vectors import Lane, x87_integers
from dmods.target import Target

# arch/x86/include/uapi/asm/sigcontext.h: struct _fpx_sw_bytes at the end of the legacy area, and the word that follows
# the whole area.
_MAGIC, _END_MAGIC, _SW_BYTES_AT = 0x46505853, 0x46505845, 464
_LEAST, _MOST = 576, 1 << 16  # bytes of an XSAVE area
_MOST_FRAMES = 1 << 16
_MOST_STACK = 16 << 20  # bytes above a stack pointer that are searched


@cached
def integers_in_signal_frames(target: Target) -> Sequence[tuple[int, Lane]]:
    """Return (tid, part of a register) of the integers in the x87 unit that signal frames hold."""
    if target.arch.name not in ("x86_64", "i386"):
        return []
    found: list[tuple[int, Lane]] = []
    tids = sorted((thread.registers.get(target.arch.sp, 0), thread.tid) for thread in target.threads())
    # The stacks of many threads may lie in one mapping. Each byte is read once.
    stacks = Ranges((start, min(end, start + _MOST_STACK)) for start, end in above_stack_pointers(target))
    for base, area in _areas(target, list(stacks)):
        owner = max(bisect_right(tids, (base, sys.maxsize)) - 1, 0)
        found.extend((tids[owner][1], lane) for lane in x87_integers(area, target.arch.word))
    return found


def _areas(target: Target, stacks: list[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """Yield the address of each XSAVE area in the memory, and its legacy part."""
    word, image = target.arch.word, target.image()
    wanted = (_MAGIC, _MAGIC + 1) if word == 4 else (_MAGIC + (_LEAST << 32), _MAGIC + (_MOST << 32))
    for at in find_pointers(image, stacks, word, [wanted], _MOST_FRAMES)[0]:
        magic, _extended, _features, size = struct.unpack("<IIQI", image.read(at, 20).ljust(20, b"\0"))
        base = at - _SW_BYTES_AT
        if magic != _MAGIC or not _LEAST <= size <= _MOST or base < 0:
            continue
        if image.read(base + size, 4) == struct.pack("<I", _END_MAGIC):
            yield base, image.read(base, _SW_BYTES_AT)
