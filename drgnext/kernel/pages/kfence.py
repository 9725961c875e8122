"""KFENCE's pool: pages in which the kernel guards a sample of its slab objects (mm/kfence/core.c, since 5.12).

The object with the number N has the page 2 * (N + 1) of the pool to itself, at its beginning or its end. A pattern
fills the rest of that page, and the pages around it are protected. ``struct kfence_metadata`` N says which object it
is, who allocated and who freed it. A kernel whose sample_interval was 0 allocates the pool when somebody first sets it.

pool = guarded_pool(prog, memory, page)
pool.objects[0].address, pool.objects[0].state
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Optional

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.pages.layout import enumerators

if TYPE_CHECKING:
    from drgn import Program, Type

#: The range of CONFIG_KFENCE_NUM_OBJECTS (lib/Kconfig.kfence).
_MOST_OBJECTS = 65535
_MOST_FRAMES = 64  # KFENCE_STACK_DEPTH (mm/kfence/kfence.h)
_METADATA = "struct kfence_metadata"
_TRACK = "struct kfence_track"

ALLOCATED, FREED = "allocated", "freed"
#: A free of an object of a cache with SLAB_TYPESAFE_BY_RCU waits for the readers. Its user may not use it any more.
_STATES = {
    "KFENCE_OBJECT_ALLOCATED": ALLOCATED,
    "KFENCE_OBJECT_RCU_FREEING": FREED,
    "KFENCE_OBJECT_FREED": FREED,
}


class GuardedTrack(NamedTuple):
    """An allocation or a free: the address of its struct kfence_track, pid, CPU, ns since the boot, return addresses.

    Before 5.18 the kernel recorded neither the CPU nor the time: they are -1 and 0.
    """

    at: int
    pid: int
    cpu: int
    time: int
    frames: tuple[int, ...]


class Guarded(NamedTuple):
    """An object that KFENCE guards, or guarded until it was freed.

    ``size`` is what was asked for. ``cache`` is the address of its struct kmem_cache. ``unprotected`` is an address in
    the page that KFENCE opened after an access beyond the object, or 0.
    """

    number: int
    metadata: int
    address: int
    size: int
    cache: int
    state: str
    unprotected: int


@dataclass(frozen=True)
class GuardedPool:
    """The pool at [start, end). ``words`` are the addresses of the words in which KFENCE notes where objects lie.

    ``record`` is the size of a struct kfence_metadata. ``notes`` say what the dump lacks.
    """

    start: int
    end: int
    page: int
    record: int
    objects: tuple[Guarded, ...]
    words: tuple[int, ...]
    notes: tuple[str, ...]


def guarded_pool(prog: Program, memory: Memory, page: int) -> Optional[GuardedPool]:
    """Return KFENCE's pool, or None if this kernel has none. ``page`` is the size of a page in bytes.

    Raises LookupError if the kernel has a pool whose types are not known.
    """
    start = memory.word(_symbol(prog, "__kfence_pool")) or 0
    records = _symbol(prog, "kfence_metadata")
    if not start or start % page or not records:
        return None
    layout = _Layout(prog)
    # An array up to 6.4. Since 6.5 a pointer to one, because the pool may be made long after the boot.
    for first in (memory.word(records) or 0, records):
        if layout.is_object(memory, first, start, 0, page):
            return _pool(layout, memory, first, start, page)
    note = "the dump lacks the records of KFENCE's objects: its pool counts as slabs, which are not objects"
    return GuardedPool(start, start, page, layout.size, (), (), (note,))


def _pool(layout: _Layout, memory: Memory, first: int, start: int, page: int) -> GuardedPool:
    """Return the pool whose records begin at ``first``. They end where a record does not belong to its page."""
    count = 0
    while count < _MOST_OBJECTS and layout.is_object(memory, first + count * layout.size, start, count, page):
        count += 1
    objects = (layout.object(memory, first + number * layout.size, number, page) for number in range(count))
    words = tuple(first + number * layout.size + layout.addr for number in range(count))
    found = tuple(one for one in objects if one is not None)
    return GuardedPool(start, start + 2 * (count + 1) * page, page, layout.size, found, words, ())


def _symbol(prog: Program, name: str) -> int:
    """Return the address of a variable, 0 if this kernel has none of that name."""
    with suppress(LookupError):
        return int(prog.symbol(name).address)
    return 0


class _Layout:
    """The offsets in struct kfence_metadata. Raises LookupError if it is not known."""

    def __init__(self, prog: Program) -> None:
        from drgn import offsetof

        kind = prog.type(_METADATA)
        names = ("state", "addr", "size", "cache", "unprotected_page", "alloc_track", "free_track")
        offsets = {name: int(offsetof(kind, name)) for name in names}
        self.addr = offsets["addr"]
        self.size = _size(kind)
        self._offsets = offsets
        named = enumerators(prog, "enum kfence_object_state")
        self._states = {value: _STATES[name] for name, value in named.items() if name in _STATES}

    def is_object(self, memory: Memory, record: int, start: int, number: int, page: int) -> bool:
        """Return whether a record belongs to the page with that number. It does so from the pool's first moment on."""
        at = memory.word(record + self.addr) if record else None
        return at is not None and at & -page == start + 2 * (number + 1) * page

    def object(self, memory: Memory, record: int, number: int, page: int) -> Optional[Guarded]:
        """Return the object of a record, or None if the page was never used, or the record is damaged."""
        word = {name: memory.word(record + offset) or 0 for name, offset in self._offsets.items()}
        state = self._states.get(word["state"] & 0xFFFFFFFF)
        size, address = word["size"], word["addr"]
        if state is None or not 0 < size <= page - address % page or address % 8:
            return None
        return Guarded(number, record, address, size, word["cache"], state, word["unprotected_page"])


def _size(kind: Type) -> int:
    if not kind.size:
        raise LookupError(f"{kind.type_name()} is only declared")
    return int(kind.size)


def guarded_track(prog: Program, memory: Memory, one: Guarded, freed: bool) -> Optional[GuardedTrack]:
    """Return who allocated, or freed, an object. None where that was not recorded, or the dump lacks it."""
    from drgn import offsetof

    try:
        kind = prog.type(_TRACK)
        at = one.metadata + int(offsetof(prog.type(_METADATA), "free_track" if freed else "alloc_track"))
        data = memory.read(at, _size(kind))
        count = _number(kind, data, "num_stack_entries") or 0
        entries = int(offsetof(kind, "stack_entries"))
    except LookupError:
        return None
    count = min(count, _MOST_FRAMES, max(0, len(data) - entries) // 8)
    if count <= 0:
        return None
    frames = struct.unpack_from(f"<{count}Q", data, entries)
    cpu, time = _number(kind, data, "cpu"), _number(kind, data, "ts_nsec")
    return GuardedTrack(at, _number(kind, data, "pid") or 0, -1 if cpu is None else cpu, time or 0, frames)


def _number(kind: Type, data: bytes, name: str) -> Optional[int]:
    """Return a member of a track, signed, or None if this kernel or the dump lacks it."""
    from drgn import offsetof, sizeof

    if not kind.has_member(name):
        return None
    at, size = int(offsetof(kind, name)), int(sizeof(kind.member(name).type))
    return int.from_bytes(data[at : at + size], "little", signed=True) if at + size <= len(data) else None


class Overwritten(NamedTuple):
    """Bytes beside an object that are not KFENCE's pattern: the first of them, and how many up to the last."""

    at: int
    found: bytes


def overwritten(one: Guarded, page: bytes) -> Iterator[Overwritten]:
    """Yield what was written before and behind an allocated object. ``page`` has the bytes of its page.

    The pattern has never changed: 0xaa, and the lowest three bits of the address turned over
    (mm/kfence/kfence.h, KFENCE_CANARY_PATTERN).
    """
    base = one.address - one.address % len(page)
    pattern = bytes(0xAA ^ low for low in range(8)) * (len(page) // 8)
    inside = one.address - base
    for start, end in ((0, inside), (inside + one.size, len(page))):
        if page[start:end] != pattern[start:end]:
            wrong = [at for at in range(start, end) if page[at] != pattern[at]]
            yield Overwritten(base + wrong[0], page[wrong[0] : wrong[-1] + 1])
