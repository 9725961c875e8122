"""Who allocated and who freed a slab object: the kernel's ``struct track``, and the stacks that it refers to.

The kernel keeps them with slub_debug=U (slab_debug=U since 6.9) on its command line. KFENCE keeps them of the objects
that it guards.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Optional

from dmods.base.dataclass import dataclass, replace
from dmods.errors import UserError
from dmods.records.model import Stack
from drgnext.kernel.pages.kfence import Guarded
from drgnext.kernel.slabs.caches import SlabCacheInfo
from drgnext.kernel.slabs.freed_code import mark_freed
from drgnext.kernel.slabs.objects import Object, SlabObjects
from drgnext.kernel.stacks.code import kernel_code

if TYPE_CHECKING:
    from drgn import Program

    from dmods._engine import SlabGroup, SlabTrack

HOW_TO_TRACK = "boot the kernel with slub_debug=U (one cache: slub_debug=U,CACHE); since 6.9 also slab_debug=U"

NO_STACK = Stack((), False)
_MOST_FRAMES = 256
_MOST_POOLS = 1 << 17
_ALIGN = 4  # DEPOT_STACK_ALIGN (lib/stackdepot.c), the same since 4.6
_WORD = (1 << 64) - 1
_OLD_FRAMES = 16  # TRACK_ADDRS_COUNT


@dataclass(frozen=True)
class SlabRecord:
    """An allocation, or the last free, of an object. ``bufctl`` is the address of the track itself.

    ``time`` is in ns since the boot, ``age`` in ns before the dump. ``requested`` is what kmalloc was asked for, where
    the kernel records that (6.1).
    """

    bufctl: int
    address: int
    size: int
    cache: Optional[SlabCacheInfo]
    freed: bool
    time: int
    age: int
    pid: int
    cpu: int
    stack: Stack
    requested: Optional[int] = None


@dataclass(frozen=True)
class SlabUser:
    """The objects of one cache and one stack. ``oldest`` is the address of the oldest, ``time`` is in ns."""

    cache: Optional[SlabCacheInfo]
    size: int
    stack: Stack
    tracked: bool
    count: int
    kept_count: int
    kept_bytes: int
    oldest: int
    time: int

    @property
    def bytes(self) -> int:
        """Return the bytes of the objects."""
        return self.count * self.size

    @property
    def likely_count(self) -> int:
        """Return the number of objects: all of them have a track."""
        return self.count

    @property
    def likely_bytes(self) -> int:
        """Return their bytes."""
        return self.bytes

    @property
    def least(self) -> int:
        """Return the bytes of the smallest object. All of them have the same."""
        return self.size

    @property
    def most(self) -> int:
        """Return the bytes of the largest object."""
        return self.size

    @property
    def identity(self) -> Stack:
        """Return a key that is unique to its stack."""
        return self.stack

    @property
    def first(self) -> tuple[int, int]:
        """Return the time and the address of the oldest object."""
        return self.time, self.oldest


def together(one: SlabUser, other: SlabUser) -> SlabUser:
    """Return the objects of two groups of one stack as one."""
    first = min(one, other, key=lambda each: each.first)
    return replace(
        first,
        count=one.count + other.count,
        kept_count=one.kept_count + other.kept_count,
        kept_bytes=one.kept_bytes + other.kept_bytes,
    )


class Tracks:
    """The tracks of one kernel."""

    def __init__(self, slabs: SlabObjects) -> None:
        self._slabs = slabs
        self._prog = slabs.prog
        self._stacks: dict[bytes, Stack] = {}
        self._depot = StackDepot(slabs.prog)

    @cached_property
    def any(self) -> bool:
        """Return whether a cache has tracks, or KFENCE guards objects."""
        return self.of_caches or self._slabs.guarded.in_use > 0

    @cached_property
    def of_caches(self) -> bool:
        """Return whether a cache has tracks."""
        return any(cache.track for cache in self._slabs.caches)

    def require(self) -> None:
        """Raise UserError if no cache has tracks. KFENCE guards only a sample of all objects."""
        if not self.of_caches:
            raise UserError("this kernel did not record who allocated slab objects", HOW_TO_TRACK)

    @property
    def notes(self) -> list[str]:
        """Return what is missing, one line each."""
        return list(self._depot.notes)

    def of(self, found: Object, freed: bool) -> Optional[SlabRecord]:
        """Return who allocated, or last freed, an object. None where that was not recorded."""
        if found.cache is not None and found.cache.guarded is not None:
            return self._guarded(found.cache, found.cache.guarded, freed)
        track = self._slabs.engine.track(found.address, freed)
        return self.record(found.address, found.size, found.cache, track, freed) if track is not None else None

    def _guarded(self, cache: SlabCacheInfo, one: Guarded, freed: bool) -> Optional[SlabRecord]:
        """Return the record that KFENCE has of an object."""
        track = self._slabs.guarded.track(one, freed)
        if track is None:
            return None
        age = max(0, self.times(self._clock[0])[0] - track.time)
        stack = Stack(mark_freed(kernel_code(self._slabs.kernel), list(track.frames)), False)
        return SlabRecord(
            track.at, one.address, one.size, cache, freed, track.time, age, track.pid, track.cpu, stack, one.size
        )

    def record(
        self, address: int, size: int, cache: Optional[SlabCacheInfo], track: SlabTrack, freed: bool
    ) -> SlabRecord:
        """Return a track of the engine as a record."""
        at, key, cpu, pid, when = track
        requested = None
        if cache is not None and cache.requested:
            data = self._slabs.pages.read(address + cache.requested, 4)
            asked = int.from_bytes(data, "little")
            requested = asked if len(data) == 4 and 0 < asked <= size else None
        time, age = self.times(when)
        return SlabRecord(at, address, size, cache, freed, time, age, pid, cpu, self.stack(key), requested)

    def user(self, group: SlabGroup) -> SlabUser:
        """Return a group of the engine, with its stack."""
        number, size, key, count, kept, kept_bytes, oldest, when = group
        cache = self._slabs.cache(number)
        if cache is not None and cache.guarded is not None:
            record = self._guarded(cache, cache.guarded, False)
            if record is not None:
                return SlabUser(cache, size, record.stack, True, count, kept, kept_bytes, oldest, record.time)
        stack = self.stack(key) if key is not None else NO_STACK
        time = self.times(when)[0] if key is not None else 0
        return SlabUser(cache, size, stack, key is not None, count, kept, kept_bytes, oldest, time)

    def users(self, groups: Iterable[SlabGroup]) -> list[SlabUser]:
        """Return groups of the engine. Objects of KFENCE's that one stack allocated become one group."""
        found: list[SlabUser] = []
        guarded: dict[tuple[str, int, Stack], SlabUser] = {}
        for user in map(self.user, groups):
            if user.cache is None or user.cache.guarded is None:
                found.append(user)
                continue
            key = (user.cache.name, user.size, user.stack)
            guarded[key] = user if key not in guarded else together(guarded[key], user)
        return [*found, *guarded.values()]

    def newest(self, freed: bool, pid: int, most: int) -> tuple[int, int, list[SlabRecord]]:
        """Return (objects, bytes, the newest records) of what a task allocated and is live, or of what it freed."""
        count, size, rows = self._slabs.engine.newest(freed, pid, most)
        found = [
            self.record(address, each, self._slabs.cache(cache), track, freed) for address, each, cache, track in rows
        ]
        return count, size, found

    def stack(self, key: bytes) -> Stack:
        """Return the stack that a track has: its caller alone, where the kernel has lost the rest."""
        if key not in self._stacks:
            self._stacks[key] = self._find(key)
        return self._stacks[key]

    def _find(self, key: bytes) -> Stack:
        caller = int.from_bytes(key[:8], "little")
        rest = key[8:]
        if len(rest) == 4:
            frames = self._depot.fetch(int.from_bytes(rest, "little"))
        else:
            frames = [pc for (pc,) in struct.iter_unpack("<Q", rest[: len(rest) // 8 * 8])]
            frames = frames[: frames.index(0)] if 0 in frames else frames
            frames = [pc for pc in frames if pc != _WORD]  # 5.10 ends some with ULONG_MAX
        if not frames and not caller:
            return NO_STACK
        cut = len(rest) > 8 and len(frames) == _OLD_FRAMES
        return Stack(mark_freed(kernel_code(self._slabs.kernel), frames or [caller]), cut)

    def times(self, when: int) -> tuple[int, int]:
        """Return (ns since the boot, ns before the dump) of a time in jiffies.

        Jiffies begin at -300 s, as a number of 32 bits (INITIAL_JIFFIES, include/linux/jiffies.h).
        """
        now, tick = self._clock
        first = -300 * (1_000_000_000 // tick) & 0xFFFFFFFF if tick else 0
        return ((when - first) & _WORD) * tick, max(0, now - when) * tick

    @cached_property
    def _clock(self) -> tuple[int, int]:
        """Return (jiffies at the dump, ns of a jiffy). The latter comes from the clock source that counts jiffies."""
        from drgn import FaultError

        try:
            source = self._prog["clocksource_jiffies"]
            tick = int(source.mult.value_()) >> int(source.shift.value_())
            return int(self._prog["jiffies_64"].value_()), _round(tick)
        except (LookupError, FaultError, AttributeError):
            return 0, 4_000_000


def _round(tick: int) -> int:
    """Return the ns of a jiffy where a frequency of 100, 250, 300 or 1000 Hz fits, else the number itself."""
    rates = (100, 128, 200, 250, 256, 300, 512, 1000, 1024, 1200)
    return next((1_000_000_000 // hz for hz in rates if abs(tick * hz - 1_000_000_000) < 2_000_000), max(tick, 1))


class StackDepot:
    """The kernel's store of stacks (lib/stackdepot.c). ``notes`` say what cannot be read."""

    def __init__(self, prog: Program) -> None:
        self._prog = prog
        self.notes: list[str] = []
        self._pools: Optional[tuple[int, int]] = None  # address of the array, how many pools it has
        with suppress(LookupError, AttributeError):
            self._layout()

    def _layout(self) -> None:
        """Find the array of pools, and the fields of a handle and of a record.

        The array was stack_slabs up to 6.2. In 6.9 a handle's index became one more than the pool's.
        """
        from drgn import TypeKind, offsetof

        prog = self._prog
        self._fields = {}
        for member in prog.type("union handle_parts").members or ():
            for field in (member.type.members or ()) if member.name is None else ():
                self._fields[field.name] = (field.bit_offset, field.bit_field_size or 0)
        record = prog.type("struct stack_record")
        self._size, self._entries = int(offsetof(record, "size")), int(offsetof(record, "entries"))
        pools = prog["stack_pools"] if "stack_pools" in prog else prog["stack_slabs"]
        if pools.type_.kind == TypeKind.ARRAY:
            self._pools = int(pools.address_ or 0), min(int(pools.type_.length or 0), _MOST_POOLS)
        else:  # 7.0 allocates the array
            self._pools = int(pools.value_()), _MOST_POOLS

    def fetch(self, handle: int) -> list[int]:
        """Return the return addresses of a stack, innermost first. [] where it cannot be had, which becomes a note."""
        from drgn import FaultError

        if not handle or self._pools is None:
            return []
        index = 0
        for name, more in (("pool_index_plus_1", 1), ("pool_index", 0), ("slabindex", 0)):
            if name in self._fields:
                index = self._bits(handle, name) - more
                break
        try:
            first, count = self._pools
            if not 0 <= index < count:
                raise ValueError
            pool = self._prog.read_u64(first + 8 * index)
            at = pool + (self._bits(handle, "offset") << _ALIGN)
            size = self._prog.read_u32(at + self._size)
            if not pool or not 0 < size <= _MOST_FRAMES:
                raise ValueError
            return list(struct.unpack(f"<{size}Q", self._prog.read(at + self._entries, 8 * size)))
        except (FaultError, ValueError, OverflowError):
            text = "stacks of the stack depot cannot be read: CALLER is the caller of the allocator alone"
            if text not in self.notes:
                self.notes.append(text)
            return []

    def _bits(self, handle: int, name: str) -> int:
        offset, width = self._fields[name]
        return handle >> offset & (1 << width) - 1
