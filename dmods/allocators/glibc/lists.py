"""Say on which list a free block is, and which thread or arena the list belongs to."""

from __future__ import annotations

from functools import cached_property
from typing import Callable, Optional

from dmods.allocators.block import Block
from dmods.allocators.glibc.caches import FreeList, list_holding
from dmods.allocators.glibc.state import State
from dmods.allocators.glibc.structures import BIN_LINKS, Arena
from dmods.allocators.numbers import arena_name

_MOST_STEPS = 100_000  # along a bin, from a chunk to the bin's head
_TLS_REACH = 16 << 10  # bytes around a thread pointer where its variable ``tcache`` is looked for


class FreeLists:
    """Finds the list of a free chunk. ``thread_named`` names a thread in words."""

    def __init__(self, heap: State, thread_named: Callable[[Optional[int]], str]) -> None:
        self.heap = heap
        self.thread_named = thread_named

    def holding(self, block: Block) -> str:
        """Return where a free block is, in words: "in the tcache of thread 123", "in a fastbin of arena main"."""
        free = list_holding(self.heap.process.engine, self.heap.caches, block.address)
        if free is not None:
            return f"in {self._named(free)}"
        found = self._bin(block)
        return f"in {found}" if found is not None else "on no list that could be followed"

    def tcache(self, address: int) -> str:
        """Return what a ``tcache_perthread_struct`` is, in words."""
        return f"the tcache_perthread_struct of {self.thread_named(self._owners.get(address))}"

    def _named(self, free: FreeList) -> str:
        words = free.name.split()
        if free.to_user:  # "tcache 0x... bin N"
            return f"the tcache of {self.thread_named(self._owners.get(int(words[1], 16)))}"
        return f"a fastbin of arena {arena_name(int(words[1]))}"  # "arena N fastbin SIZE"

    @cached_property
    def _owners(self) -> dict[int, int]:
        """Return the tid of the thread that uses each tcache_perthread_struct, by its address.

        The thread's variable ``tcache`` (malloc.c, thread-local) points to it. The nearest pointer to a thread pointer
        decides.
        """
        words, target = self.heap.process.words, self.heap.process.target
        nearest: dict[int, tuple[int, int]] = {}
        for thread in target.threads():
            base = thread.registers.get(target.arch.thread_pointer, 0)
            low, high = max(0, base - _TLS_REACH), min(base + _TLS_REACH, words.mask)
            for start, end in target.image().covered(low, high) if base else ():
                first = -(-start // words.size) * words.size
                values = words.many(first, (end - first) // words.size) or ()
                for index, value in enumerate(values):
                    if value in self._tcaches:
                        distance = abs(first + index * words.size - base)
                        nearest[value] = min(nearest.get(value, (distance, thread.tid)), (distance, thread.tid))
        return {address: tid for address, (_distance, tid) in nearest.items()}

    @cached_property
    def _tcaches(self) -> frozenset[int]:
        return frozenset(self.heap.caches.tcaches)

    def _bin(self, block: Block) -> Optional[str]:
        """Return the bin whose ring of chunks (``fd``) the block is on. A damaged ring may lead anywhere."""
        if block.arena is None or block.arena >= len(self.heap.all):
            return None
        arena, words = self.heap.all[block.arena], self.heap.process.words
        chunk = block.address - 2 * words.size
        for _step in range(_MOST_STEPS):
            index = _bin_index(arena, chunk)
            if index is not None:
                kind = "unsorted" if index == 1 else "small" if index < _SMALL_BINS else "large"
                return f"{'the' if index == 1 else 'a'} {kind} bin of arena {arena_name(block.arena)}"
            following = words.at(chunk + 2 * words.size)
            if following is None or following == chunk:
                return None
            chunk = following
        return None


_SMALL_BINS = 64  # NSMALLBINS, malloc.c


def _bin_index(arena: Arena, chunk: int) -> Optional[int]:
    """Return the number of the bin whose head, seen as a chunk, is at this address (``bin_at``, malloc.c). None: it is
    not the head of a bin."""
    offset = chunk + 2 * arena.word - arena.bins
    pair = 2 * arena.word
    return offset // pair + 1 if offset % pair == 0 and 0 <= offset < BIN_LINKS * arena.word else None
