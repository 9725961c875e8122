"""A profile out of the table of gperftools' heap profiler (HEAPPROFILE, HeapProfilerStart): every allocation and free.

The table has no symbol. It is found in the writable memory of the module that has HeapProfilerDump: a pointer to a
structure whose sums are those of its buckets (src/heap-profile-table.h, verified with 2.10).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words
from dmods.modules.by_address import modules_by_address
from dmods.profile.code import Locations
from dmods.profile.model import TYPES, Label, Profile, Raw, Sample
from dmods.target import Module, Target

NAME = "the heap profiler of gperftools"
_DUMP = "HeapProfilerDump"
_WORD = 8  # bytes: the layout was seen on 64-bit machines alone
# class HeapProfileTable, in words: two functions; total_; further on the table of buckets and how many there are
_TOTAL, _TABLE, _COUNT, _SIZE = 2, 10, 11, 12
_SLOTS = 179_999  # kHashTableSize
# struct HeapProfileBucket, in words: the stats (two 32-bit counts, two sums), hash, depth, stack, next
_DEPTH, _STACK, _NEXT, _BUCKET = 4, 5, 6, 7
_MOST_FRAMES = 256  # kMaxStackDepth is 32
_MOST_BUCKETS = 1 << 20


class Stats(NamedTuple):
    """Counts and bytes of allocations and frees."""

    allocs: int
    frees: int
    alloc_bytes: int
    free_bytes: int


class Bucket(NamedTuple):
    """The stats of one stack: return addresses, innermost first."""

    stats: Stats
    stack: tuple[int, ...]


def find_gperftools(target: Target) -> Optional[list[Bucket]]:
    """Return the buckets of the profiler's table, or None where there is no profiler or it was not started."""
    symbol = target.lookup(_DUMP) if target.arch.word == _WORD else None
    module = modules_by_address(target).at(symbol.address) if symbol is not None else None
    if module is None:
        return None
    words = Words(target.image(), _WORD)
    code = [(piece.start, piece.end) for piece in module.ranges if "x" in piece.flags]
    seen: set[int] = set()
    for at in _pointers(target, module, words):
        if at in seen:
            continue
        seen.add(at)
        table = words.many(at, _SIZE)
        if table is None or not all(any(start <= each < end for start, end in code) for each in table[:_TOTAL]):
            continue
        found = list(_buckets(words, table[_TABLE], table[_COUNT]))
        if len(found) == table[_COUNT] and _sum(found) == _stats(table[_TOTAL:]):
            return found
    return None


def from_gperftools(target: Target, found: Sequence[Bucket]) -> Profile:
    """Return the profile of the buckets. It has no thread and no time: the profiler does not keep them."""
    locations = Locations(target)
    profile = Profile(types=TYPES, source=NAME)
    for stats, stack in found:
        blocks, size = stats.allocs - stats.frees, stats.alloc_bytes - stats.free_bytes
        labels: tuple[Label, ...] = (("bytes", size // blocks),) if blocks else ()
        places = tuple(locations.at(address, False) for address in stack)
        values = (stats.allocs, stats.alloc_bytes, blocks, size)
        profile.samples.append(Sample(places, values, (*labels, ("allocator", "tcmalloc")), Raw(stack, blocks, size)))
    profile.samples.sort(key=lambda sample: -sample.values[3])
    profile.locations, profile.mappings = locations.all, locations.finished()
    return profile


def _pointers(target: Target, module: Module, words: Words) -> Iterator[int]:
    """Yield the words of the module's data that may point to a structure."""
    for piece in target.mappings():
        if "w" in piece.flags and piece.start < module.end and module.start < piece.end:
            start, end = max(piece.start, module.start), min(piece.end, module.end)
            for value in words.many(start, (end - start) // _WORD) or ():
                if value > 1 << 16 and value % _WORD == 0:
                    yield value


def _buckets(words: Words, table: int, count: int) -> Iterator[Bucket]:
    slots = words.many(table, _SLOTS) if 0 < count <= _MOST_BUCKETS else None
    left = count
    for slot in slots or ():
        at = slot
        while at and left:
            bucket = words.many(at, _BUCKET)
            depth = bucket[_DEPTH] & 0xFFFFFFFF if bucket is not None else 0
            stack = words.many(bucket[_STACK], depth) if bucket is not None and depth <= _MOST_FRAMES else None
            if bucket is None or stack is None:
                return
            yield Bucket(_stats(bucket), tuple(stack))
            left -= 1
            at = bucket[_NEXT]


def _stats(words: Sequence[int]) -> Stats:
    return Stats(words[0] & 0xFFFFFFFF, words[0] >> 32, words[1], words[2])


def _sum(found: Sequence[Bucket]) -> Stats:
    return Stats(*(sum(each) for each in zip(*(bucket.stats for bucket in found)))) if found else Stats(0, 0, 0, 0)
