"""jemalloc's own allocation records (`MALLOC_CONF=prof:true`): who allocated each sampled block, when and where.

With `prof_recent_alloc_max` it also has the transactions. A sampled block has an extent of its own, whose record points
to a prof_tctx_t (a stack and a thread). That points to a prof_gctx_t, which has the stack, and to a prof_tdata_t, which
has the thread. Records of recent allocations (prof_recent_t) form a ring; any live one leads into it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from dmods import _engine
from dmods.allocators.jemalloc.caches import Tcache, find_tcaches
from dmods.allocators.jemalloc.find import Jemalloc, find_jemallocs
from dmods.allocators.jemalloc.layouts import Profile
from dmods.allocators.recording import NOBODY, RecordedThread, Recording
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words
from dmods.target import Target

if TYPE_CHECKING:
    from dmods._engine import GivenLog, GivenRecord

NAME = "jemalloc's profiler"
_BATCH = 65536
_LEAST = 4096  # 0 and 1 stand for "not sampled"
_MOST_FRAMES = 4096  # PROF_BT_MAX_LIMIT
_MOST_RECENT = 1 << 22
_NAME = 64  # bytes of a thread's name
_ADDRESS = (1 << 48) - 1
_MOST_WEIGHED, _MOST_SUMMED = 32, 1 << 14  # stacks, and blocks of each, from which the sampling distance is computed
_MOST_LG = 40
_LG_DEFAULT = 19  # LG_PROF_SAMPLE_DEFAULT


class Sampled(NamedTuple):
    """A live block with a record, which is at `record`."""

    address: int
    record: int
    requested: int
    usable: int
    time: int
    tctx: int
    recent: int


@dataclass
class Reader:
    """Reads the profiler of one jemalloc. `stacks` and `threads` are numbered as the rows name them (stacks from 1)."""

    target: Target
    words: Words
    jemalloc: Jemalloc
    shape: Profile
    stacks: list[list[int]] = field(default_factory=list)
    threads: list[RecordedThread] = field(default_factory=lambda: [NOBODY])
    _contexts: dict[int, tuple[int, int]] = field(default_factory=dict)
    _gctxs: dict[int, int] = field(default_factory=dict)
    _tdatas: dict[int, int] = field(default_factory=dict)
    seeds: set[int] = field(default_factory=set)  # addresses in the profiler's structures

    def context(self, tctx: int) -> tuple[int, int]:
        """Return (stack, thread) of a prof_tctx_t; zeros where it cannot be read."""
        if tctx not in self._contexts:
            gctx, tdata = self.words.at(tctx + self.shape.gctx), self.words.at(tctx)
            self._contexts[tctx] = (self._stack(gctx or 0), self._thread(tdata or 0, self.words.at(tctx + 8) or 0))
            self.seeds.add(tctx)
        return self._contexts[tctx]

    def _stack(self, gctx: int) -> int:
        if gctx not in self._gctxs:
            frames = frames_of(self.words, self.shape, gctx)
            if frames is not None:
                self.stacks.append([pc & _ADDRESS for pc in frames])  # the bits above have a meaning for the engine
                self.seeds.add(gctx)
            self._gctxs[gctx] = len(self.stacks) if frames is not None else 0
        return self._gctxs[gctx]

    def _thread(self, tdata: int, uid: int) -> int:
        """Return the thread's number by its `thr_uid`. The tdata of an exited thread may be gone."""
        if uid not in self._tdatas:
            alive = tdata if self.words.at(tdata + 8) == uid else 0
            if alive:
                self.seeds.add(alive)
            self.threads.append(RecordedThread(self._tids.get(uid), self._name(alive) or f"jemalloc thread {uid}"))
            self._tdatas[uid] = len(self.threads) - 1
        return self._tdatas[uid]

    def _name(self, tdata: int) -> Optional[str]:
        if not tdata:
            return None
        at = tdata + self.shape.thread_name
        pointer = at if self.shape.inline_name else self.words.at(at)
        raw = self.words.image.read(pointer, _NAME).split(b"\0")[0] if pointer else b""
        text = raw.decode("utf-8", "replace")
        return text if text and text.isprintable() else None

    def __post_init__(self) -> None:
        self.tcaches = find_tcaches(self.words, self.target, self.jemalloc, ())
        self._tids = _tids(self.words, self.tcaches, self.shape)


def find_profile(target: Target) -> Optional[Recording]:
    """Return the profiler's records of the first jemalloc that has any, or None."""
    words = Words(target.image(), target.arch.word)
    for jemalloc in find_jemallocs(target).all:
        for shape in jemalloc.layout.profiles:
            first = next(sampled(words, jemalloc, shape), None)
            if first is not None and _holds(words, jemalloc, shape, first.tctx):
                return _recording(Reader(target, words, jemalloc, shape))
    return None


def _recording(reader: Reader) -> Recording:
    # A freed block has its record as long as a tcache holds the block.
    cached = {at for tcache in reader.tcaches for held in tcache.cached.values() for at in held}
    found = sampled(reader.words, reader.jemalloc, reader.shape)
    blocks = [block for block in found if block.address not in cached]
    lg, known = _distance(reader, blocks)
    recents = _recents(reader.words, blocks)
    contexts = {block.tctx for block in blocks} | {at for one in recents for at in (one.alloc_tctx, one.free_tctx)}
    for tctx in sorted(contexts):
        if tctx >= _LEAST:
            reader.context(tctx)
    mean = 1 << lg if lg else 0
    notes = []
    if not known:
        notes.append(f"{NAME}: the distance between its samples is not known; 1 << {lg} bytes, the default, is assumed")
    return Recording(
        NAME,
        lambda: _load(reader, blocks, recents, mean),
        reader.threads,
        mean=mean,
        log=bool(recents),
        structures=sorted(reader.seeds.union(one.at for one in recents)),
        notes=notes,
        allocator="jemalloc",
        unbiased=reader.shape.requested is not None,  # prof_unbias came with 5.3, as the requested size did
        load_usable=lambda: _load(reader, blocks, (), mean, usable=True),
    )


def sampled(words: Words, jemalloc: Jemalloc, shape: Profile) -> Iterator[Sampled]:
    """Yield the live blocks that have records, by address."""
    at, sizes = 0, jemalloc.layout.sizes
    first = min(64, shape.tctx)
    while batch := jemalloc.extents.following(at, _BATCH):
        for edata, address, _size, _arena, state, size_class, slab in batch:
            if slab or state or size_class is None:
                continue
            info = words.many(edata + first, 4)
            if info is None:
                continue
            time, tctx = info[0], info[(shape.tctx - first) // 8]
            # Remains of a slab's bitmap are no record.
            if tctx < _LEAST or tctx % 8 or frames_of(words, shape, words.at(tctx + shape.gctx) or 0) is None:
                continue
            requested = info[1] if shape.requested is not None else sizes[size_class]
            if requested > sizes[size_class]:
                continue  # the dump caught the allocation halfway, with words of an earlier use, or is damaged
            recent = info[3] if shape.recent is not None else 0
            yield Sampled(address, edata, requested, sizes[size_class], time, tctx, recent)
        at = batch[-1][1] // 4096 * 4096 + 1


def frames_of(words: Words, shape: Profile, gctx: int) -> Optional[Sequence[int]]:
    """Return the return addresses in a prof_gctx_t, innermost first, or None where it has no stack.

    The structure ends with them and says where they are.
    """
    if gctx < _LEAST or gctx % 8:
        return None
    bt = words.many(gctx + shape.bt, 2)
    if bt is None or bt[0] != gctx + shape.bt + 16:
        return None
    count = bt[1] & 0xFFFFFFFF
    return words.many(bt[0], count) if 0 < count <= _MOST_FRAMES else None


def _holds(words: Words, jemalloc: Jemalloc, shape: Profile, tctx: int) -> bool:
    """Return whether prof_tdata_t has this layout: two functions stand before the table of its ckh_t."""
    tdata = words.at(tctx) or 0
    if words.at(tdata + 8) != words.at(tctx + 8):
        return True  # the structure is gone, and nothing of it will be read
    functions = words.many(tdata + shape.bt2tctx - 16, 2)
    module = jemalloc.module
    if functions is None or module is None:
        return functions is not None and all(functions)
    return all(module.start <= function < module.end for function in functions)


# -- threads ----------------------------------------------------------------------------------------------------------


def _tids(words: Words, tcaches: Iterable[Tcache], shape: Profile) -> dict[int, int]:
    """Return thr_uid -> tid of the threads that are there: their TSD points to their prof_tdata_t."""
    found: dict[int, int] = {}
    for tcache in tcaches:
        tdata = words.at(tcache.slow + shape.in_tsd)
        uid = words.at(tdata + 8) if tdata else None
        if tcache.tid is not None and uid is not None:
            found.setdefault(uid, tcache.tid)
    return found


# -- how far apart samples are ----------------------------------------------------------------------------------------


def _distance(reader: Reader, blocks: Sequence[Sampled]) -> tuple[int, bool]:
    """Return (lg_prof_sample, whether it is known).

    5.3 keeps for each stack and thread what the samples stand for. A sample of s bytes stands for s / (1 - exp(-s /
    R)), where R is the mean distance (prof_unbiased_map_init in src/prof.c).
    """
    sizes: dict[int, list[int]] = {}
    for block in blocks if reader.shape.requested is not None else ():
        sizes.setdefault(block.tctx, []).append(block.usable)
    errors: Counter[int] = Counter()
    for tctx in sorted(sizes, key=lambda one: len(sizes[one]))[:_MOST_WEIGHED]:
        own = sizes[tctx][:_MOST_SUMMED]
        sums = reader.words.many(tctx + 32, 4)
        if sums is None or sums[0] != len(own) or sums[2] != sum(own):
            continue  # the sum is damaged, or some of its blocks are not known
        for lg in range(_MOST_LG):
            likely = sum(size / -math.expm1(-size / (1 << lg)) for size in own)
            errors[lg] += round(abs(likely - sums[3]) / likely * 1e6) + 1
    best = min(errors, key=lambda lg: errors[lg], default=None)
    return (best, True) if best is not None else (_LG_DEFAULT, False)


# -- transactions -----------------------------------------------------------------------------------------------------


class Recent(NamedTuple):
    """A prof_recent_t. `freed` is 0 while the block, of the extent `edata`, is in use."""

    at: int
    allocated: int
    freed: int
    size: int
    edata: int
    alloc_tctx: int
    free_tctx: int


def _recents(words: Words, blocks: Sequence[Sampled]) -> list[Recent]:
    """Return the ring of recent allocations, entered from any block. A damaged ring is followed as far as it leads."""
    found: dict[int, Recent] = {}
    for block in blocks:
        at = block.recent
        while at and at % 8 == 0 and at not in found and len(found) < _MOST_RECENT:
            node = words.many(at, 9)
            # prof_recent_t: two times, the links of the ring, size, usable size, extent, and two contexts
            if node is None or node[3] == 0 or words.at(node[3] + 16) != at:
                break
            found[at] = Recent(at, node[0], node[1], node[4], node[6], node[7], node[8])
            at = node[2]
    return list(found.values())


def _load(
    reader: Reader, blocks: Sequence[Sampled], recents: Sequence[Recent], mean: int, usable: bool = False
) -> _engine.Records:
    records: list[GivenRecord] = [
        (
            block.address,
            block.record,
            block.usable if usable else block.requested,
            block.time,
            *reader.context(block.tctx),
        )
        for block in blocks
    ]
    addresses = {block.record: block.address for block in blocks}
    events = []
    for one in recents:
        alloc = reader.context(one.alloc_tctx) if one.alloc_tctx >= _LEAST else (0, 0)
        events.append((one.allocated, 0, one, alloc, (0, 0, 0)))
        if one.freed or not one.edata:
            free = reader.context(one.free_tctx) if one.free_tctx >= _LEAST else (0, 0)
            events.append((one.freed, 1, one, free, (one.allocated, *alloc)))
    events.sort(key=lambda event: event[:2])
    log: list[GivenLog] = []
    for sequence, (time, freed, one, (stack, thread), before) in enumerate(events, 1):
        # jemalloc does not keep the address of a freed block.
        block = addresses.get(one.edata, 0)
        log.append((one.at + freed, sequence, bool(freed), block, one.size, time, stack, thread, before, (0, 0)))
    return _engine.Records(records, log, reader.stacks, mean)
