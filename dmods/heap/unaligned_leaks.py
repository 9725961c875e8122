"""Leaked blocks with pointers that do not begin at a multiple of the word size, as in packed structures.

Such pointers are no roots: the bytes of other data would hold blocks by accident. But a program with packed structures
must not be told that it leaks what they hold. Where the heap is small, its leaks are found again with these pointers.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmods.heap.process_heap import ProcessHeap

_LARGEST = 64 << 20  # bytes of a heap: its leaks are found again in less than a second
_LEAST = 16  # blocks, at least: fewer are an accident
_PART = 0.1  # of the leaked blocks, at least


def unaligned_notes(heap: ProcessHeap) -> Iterator[str]:
    """Yield a note if many of the leaked blocks have such pointers."""
    leaks = heap.leaks()
    count = leaks.direct_count + leaks.indirect_count
    if heap.unaligned or count < _LEAST or heap.bytes > _LARGEST:
        return
    left = ProcessHeap(heap.target, unaligned=True, stale_links=heap.stale_links).leaks()
    held = count - left.direct_count - left.indirect_count
    if held >= max(_LEAST, _PART * count):
        yield (
            f"{held:,} of the {count:,} leaked blocks have pointers that do not begin at a multiple of "
            f"{heap.words.size} bytes. If the program has packed structures, these blocks are in use: "
            "`findleaks --unaligned` follows such pointers"
        )
