"""Leaked blocks with odd pointers: such as do not begin at a multiple of the word size, or have a tag.

Such pointers are no roots: other data would hold blocks by accident. But a program with packed structures, or with
lists without locks, must not be told that it leaks what they hold. Where the heap is small, its leaks are found again
with these pointers.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.cached import cached
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.leak_totals import Leaks
from dmods.target import Target

_LARGEST = 64 << 20  # bytes of a heap: its leaks are found again in less than a second
_LEAST = 16  # blocks, at least: fewer are an accident
_PART = 0.1  # of the leaked blocks, at least


def odd_notes(heap: ProcessHeap) -> Iterator[str]:
    """Yield a note for each kind of pointer that many of the leaked blocks have."""
    count = _count(heap.leaks())
    if heap.index.follow.odd:
        return
    unaligned, tagged = _held(heap)
    if unaligned:
        yield (
            f"{unaligned:,} of the {count:,} leaked blocks have pointers that do not begin at a multiple of "
            f"{heap.words.size} bytes. If the program has packed structures, these blocks are in use: "
            "`findleaks --unaligned` follows such pointers"
        )
    if tagged:
        yield (
            f"{tagged:,} of the {count:,} leaked blocks have their addresses in words with a tag in the upper 16 bits. "
            "If the program has lists without locks or tagged values, these blocks are in use: `findleaks --tagged` "
            "follows such pointers"
        )


@cached
def oddly_held(target: Target) -> int:
    """Return how many of the leaked blocks odd pointers of one kind hold: 0 where they are few."""
    return max(_held(find_heap(target)))


def _held(heap: ProcessHeap) -> tuple[int, int]:
    """Return how many of the leaked blocks unaligned pointers hold, and how many tagged ones hold; 0 for a few.

    Most leaks have neither. So both are followed at once first.
    """
    count = _count(heap.leaks())
    if count < _LEAST or heap.bytes > _LARGEST:
        return 0, 0
    least = max(_LEAST, _PART * count)

    def held(unaligned: bool, tagged: bool) -> int:
        follow = heap.index.follow._replace(unaligned=unaligned, tagged=tagged)
        found = count - _count(ProcessHeap(heap.target, follow).leaks())
        return found if found >= least else 0

    has_tags = heap.words.size == 8
    if not held(True, has_tags):
        return 0, 0
    return held(True, False), held(False, True) if has_tags else 0


def _count(leaks: Leaks) -> int:
    return leaks.direct_count + leaks.indirect_count
