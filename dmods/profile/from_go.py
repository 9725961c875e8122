"""A profile out of the buckets of Go's runtime: sampled allocations and frees by stack (runtime/mprof.go).

Go counts frees, so this source has all four types of values. Every program has the buckets unless it sets
runtime.MemProfileRate to 0. They are found by symbols, so a stripped program has no such profile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words
from dmods.profile.code import Locations
from dmods.profile.model import TYPES, Profile, Sample
from dmods.target import Target

NAME = "the profile of Go's runtime"
_BUCKETS, _CYCLE, _RATE = "runtime.mbuckets", "runtime.mProfCycle", "runtime.MemProfileRate"
# struct bucket: next, allnext, typ, hash, size, nstk; then the return addresses; then struct memRecord
_ALL_NEXT, _HEAD = 1, 6
_MEMORY = 1  # memProfile, the first bucketType
_RECORD = 4  # memRecordCycle: allocs, frees, bytes of both
_RECORDS = 1 + 3  # active, and future[3]
_MOST_FRAMES = 1024  # maxProfStackDepth
_MOST_BUCKETS = 1 << 20
_MOST_RATE = 1 << 40
_RUNTIME = ("runtime.", "internal/runtime/")  # the second since 1.24 (runtime/pprof/protomem.go, writeHeapProto)


class Bucket(NamedTuple):
    """The runtime's counts for one stack and size. The frames are return addresses, innermost first."""

    stack: tuple[int, ...]
    allocs: int
    frees: int
    alloc_bytes: int
    free_bytes: int


def find_go(target: Target) -> Optional[int]:
    """Return the address of the first bucket, or None where the process has no Go runtime with buckets."""
    symbol = target.lookup(_BUCKETS)
    first = Words(target.image(), target.arch.word).at(symbol.address) if symbol is not None else None
    return first or None


def from_go(target: Target, first: int) -> Profile:
    """Return the profile of the buckets from `first` on. Each bucket is scaled here, by its mean size."""
    words = Words(target.image(), target.arch.word)
    rate = _value(target, words, _RATE)
    profile = Profile(types=TYPES, source=NAME, period=max(1, rate or 1))
    if rate is None or not 0 <= rate < _MOST_RATE:
        profile.period = 1
        profile.notes.append(f"{NAME}: {_RATE} is not in the dump: the values are those of the samples, not scaled")
    locations = Locations(target)
    for bucket in buckets(target, words, first, profile.notes):
        alloc = scaled(bucket.allocs, bucket.alloc_bytes, profile.period)
        blocks, size = bucket.allocs - bucket.frees, bucket.alloc_bytes - bucket.free_bytes
        inuse = scaled(blocks, size, profile.period)
        if not any((*alloc, *inuse)):  # allocated since the last but one collection: no profile has it yet
            continue
        labels = (("bytes", bucket.alloc_bytes // bucket.allocs),) if bucket.allocs else ()
        stack = tuple(locations.at(address, False) for address in bucket.stack)
        profile.samples.append(Sample(stack, (*alloc, *inuse), labels))
    # Go leaves them out as well (runtime/pprof: hideRuntime in protomem.go, goexit in proto.go).
    for place, sample in enumerate(profile.samples):
        profile.samples[place] = sample._replace(stack=_without_runtime(_joined(sample.stack, locations), locations))
    profile.samples.sort(key=lambda sample: -sample.values[3])
    profile.locations, profile.mappings = locations.all, locations.finished()
    profile.comments.append(f"each stack was scaled by its mean size, one sample in {profile.period} bytes")
    return profile


def buckets(target: Target, words: Words, first: int, notes: list[str]) -> Iterator[Bucket]:
    """Yield the buckets. What is damaged ends the list, with a note."""
    cycle = _cycle(target, words)
    if cycle is None:
        notes.append(f"{NAME}: {_CYCLE} is not in the dump: allocations since the last but one collection are missing")
    at, seen = first, 0
    while at:
        head = words.many(at, _HEAD)
        count = head[5] if head is not None else 0
        records = words.many(at + words.size * (_HEAD + count), _RECORD * _RECORDS) if count <= _MOST_FRAMES else None
        stack = words.many(at + words.size * _HEAD, count) if records is not None else None
        if head is None or records is None or stack is None or head[2] != _MEMORY or seen >= _MOST_BUCKETS:
            notes.append(f"{NAME}: the list of buckets is damaged at {at:#x}: what follows is missing")
            return
        sums = list(records[:_RECORD])
        if cycle is not None and cycle >= 0:
            pending = records[_RECORD * (1 + cycle) : _RECORD * (2 + cycle)]
            sums = [have + more for have, more in zip(sums, pending)]
        if sums[0] >= sums[1] and sums[2] >= sums[3]:
            yield Bucket(tuple(stack), *sums)
        else:
            notes.append(f"{NAME}: the bucket at {at:#x} has more frees than allocations: it is left out")
        seen += 1
        at = head[_ALL_NEXT]


def scaled(count: int, size: int, rate: int) -> tuple[int, int]:
    """Return the blocks and bytes that samples stand for, as Go computes them (scaleHeapSample)."""
    if not count or not size:
        return 0, 0
    if rate <= 1:
        return count, size
    scale = 1 / (1 - math.exp(-(size / count) / rate))
    return int(count * scale), int(size * scale)


def _cycle(target: Target, words: Words) -> Optional[int]:
    """Return which of future[3] still belongs to the profile: 0 to 2, or -1 where it was flushed. None: not known.

    The word is the number of the cycle, and one bit that says whether it was flushed (mProfCycleHolder).
    """
    symbol = target.lookup(_CYCLE)
    value = words.image.read(symbol.address, 4) if symbol is not None else b""
    if len(value) != 4:
        return None
    number = int.from_bytes(value, "little")
    return -1 if number & 1 else (number >> 1) % 3


def _value(target: Target, words: Words, name: str) -> Optional[int]:
    symbol = target.lookup(name)
    return words.at(symbol.address) if symbol is not None else None


def _joined(stack: tuple[int, ...], locations: Locations) -> tuple[int, ...]:
    """Return the stack with one location for functions that were inlined into each other.

    The runtime notes an address for each of them (tracebackPCs): the call, then one in each function around it. The
    location of the first has all of these functions already.
    """
    joined: list[int] = []
    inside: list[str] = []  # functions of the last location that may have an address of their own
    for place in stack:
        functions = [line.function for line in locations.all[place].lines]
        if inside and functions == inside:
            inside = inside[1:]
            continue
        joined.append(place)
        inside = functions[1:]
    return tuple(joined)


def _without_runtime(stack: tuple[int, ...], locations: Locations) -> tuple[int, ...]:
    """Return the stack without the runtime's innermost frames, and without goexit, which calls nothing."""
    if len(stack) > 1 and [line.function for line in locations.all[stack[-1]].lines] == ["runtime.goexit"]:
        stack = stack[:-1]
    for first, place in enumerate(stack):
        lines = locations.all[place].lines
        if not lines or not all(line.function.startswith(_RUNTIME) for line in lines):
            return stack[first:]
    return stack
