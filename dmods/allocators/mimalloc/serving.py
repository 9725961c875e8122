"""Tell whether malloc() of a process is mimalloc, where no name does: in a stripped program, or a renamed library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.base.regex import regex
from dmods.base.words import Words
from dmods.process.malloc_slots import Slot, slots
from dmods.process.thread_words import thread_words
from dmods.target import Module, Target

_KEEPERS = regex(r"libc[-.](\d[^/]*\.)?so|libstdc\+\+\.so")
_MOST = 1 << 22  # bytes of each part of a library's data that are looked at
_HEAP = 1024  # words of a thread's heap: the first page of each size of block stands there (`pages_free_direct`)
_PAGE = 16  # words of a page's record


def malloc_of(target: Target, read: _engine.Mimalloc) -> Optional[int]:
    """Return the malloc() that gives out the blocks. None: it cannot be told.

    A program may hold mimalloc beside a malloc() of its own, and call it by another name. These prove that it does not:

    * The C and C++ libraries call malloc() through a slot, never mimalloc by another name. If one keeps a block of
      mimalloc in its data, the slot leads to mimalloc.
    * malloc() reads the thread's heap first, from a thread-local variable (alloc.c, `mi_malloc`: 2.0.0 to 3.4). If it
      reads one that leads to such a heap, before it calls anything, it is mimalloc's.
    """
    words, seen = Words(target.image(), target.arch.word), set()
    for slot in slots(target):
        if slot.function != "malloc" or slot.server.start == slot.module.start:
            continue
        if _KEEPERS.match(slot.module.name) and _keeps_blocks(words, slot.module, read):
            return slot.value
        if slot.value not in seen and _reads_heap(target, words, slot, read):
            return slot.value
        seen.add(slot.value)
    return None


def _keeps_blocks(words: Words, module: Module, read: _engine.Mimalloc) -> bool:
    """Return whether the module's data leads to the start of a block."""
    for part in module.ranges:
        if "w" in part.flags:
            values = words.many(part.start, min(part.size, _MOST) // words.size) or ()
            if any(value and _begins(read, value) for value in values):
                return True
    return False


def _begins(read: _engine.Mimalloc, address: int) -> bool:
    """Return whether a block begins there that was in use once."""
    page = read.page_at(address)
    if page is None:
        return False
    _page, start, block, capacity, *_rest = page
    place, rest = divmod(address - start, block)
    return rest == 0 and 0 <= place < capacity


def _reads_heap(target: Target, words: Words, slot: Slot, read: _engine.Mimalloc) -> bool:
    """Return whether the function behind the slot reads the heap of some thread from a thread-local variable."""
    heaps = (words.at(pointer + offset) for offset in thread_words(target, slot.value) for pointer in _pointers(target))
    return any(heap and _is_heap(words, heap, read) for heap in heaps)


def _pointers(target: Target) -> Iterator[int]:
    for thread in target.threads():
        pointer = thread.registers.get(target.arch.thread_pointer, 0)
        if pointer:
            yield pointer


def _is_heap(words: Words, address: int, read: _engine.Mimalloc) -> bool:
    """Return whether the words at the address lead to records of pages that are known."""
    records = {value for value in _some(words, address, _HEAP) if value}
    return any(_is_record(words, record, read) for record in records)


def _is_record(words: Words, address: int, read: _engine.Mimalloc) -> bool:
    """Return whether the record of a page is there: its words lead to the page's blocks, and these lead back."""
    pages = (read.page_at(value) for value in _some(words, address, _PAGE) if value)
    return any(page is not None and page[0] == address for page in pages)


def _some(words: Words, address: int, count: int) -> Sequence[int]:
    """Return up to ``count`` words: those that the dump has."""
    data = words.image.read(address & words.mask, count * words.size)
    return memoryview(data[: len(data) // words.size * words.size]).cast("Q")
