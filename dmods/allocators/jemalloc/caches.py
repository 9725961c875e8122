"""The tcaches of threads: blocks that a thread freed or fetched ahead. Their slabs count them as in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.allocators.jemalloc.find import Jemalloc, find_jemallocs
from dmods.allocators.jemalloc.layouts import Layout, Tcaches
from dmods.base.dataclass import dataclass, field
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.process.tls import dtv_blocks
from dmods.target import Target, Thread

_REACH = 64 << 10  # bytes of static TLS on either side of a thread pointer
_BLOCK_REACH = 16 << 10  # bytes of a TLS block elsewhere (a library that was loaded later)
_MOST_RING = 1 << 20  # tcaches in a ring
_BIN = 24  # sizeof(cache_bin_t), in every release
_MOST_BINS = 73  # TCACHE_NBINS_MAX of 5.3.0; later releases store the number
_RUN = 16  # bins in a row that make a tcache
_RUN_REACH = 1 << 17  # bytes that their stacks may take
_NOMINAL = 2  # tsd_state_nominal_max: in later states the thread has returned its tcache
_MOST_EXPLICIT = 4095  # MALLOCX_TCACHE_MAX
_MOST_STRUCTURES = 4096  # structures of jemalloc that its variables point to
_ARENA_WORDS = 4096  # of an arena_t, in which its list of tcaches is
_MOST_CACHED = 1 << 13  # blocks in a bin, whose bounds have 16 bits


@dataclass
class Tcache:
    """One tcache. `address` is the address of its tcache_t.

    `tid` is the thread whose TLS holds it; None for one made by `tcache.create` or left behind by a fork. `cached` has
    the blocks of each bin that is not empty, by size class.
    """

    shape: Tcaches
    address: int
    slow: int
    tid: Optional[int]
    arena: int  # arena_t
    tail: int = 0  # 5.3: where tcache_slow_t ends, with its pointer back
    cached: dict[int, Sequence[int]] = field(default_factory=dict)
    own: list[int] = field(default_factory=list)  # addresses within memory that was allocated for it
    problems: list[str] = field(default_factory=list)


def find_tcaches(words: Words, target: Target, jemalloc: Jemalloc, pointers: Iterable[int]) -> list[Tcache]:
    """Return the tcaches of all threads and those of `tcache.create`.

    `pointers` are thread pointers without registers. Explicit tcaches hang in a ring with the others, or are in a
    table.
    """
    layout, base = jemalloc.layout, jemalloc.base
    found: dict[int, Tcache] = {}
    for pointer, thread in _thread_pointers(target, pointers):
        for start, end in _tls(words, target, pointer):
            for tcache in _in_range(words, jemalloc, start, end):
                known = found.setdefault(tcache.address, tcache)
                known.tid = known.tid or (thread.tid if thread is not None else None)
    for tcache in list(found.values()):
        _follow_ring(words, base, tcache, found)
    own = _own_structures(words, jemalloc)
    for tcache in _explicit(words, jemalloc, own):
        found.setdefault(tcache.address, tcache)
    if any(not thread.registers.get(target.arch.thread_pointer) for thread in target.threads()):
        for tcache in _of_arenas(words, jemalloc, own):
            found.setdefault(tcache.address, tcache)
    # A second jemalloc of the process has its tcaches there as well.
    others = [one.base for one in find_jemallocs(target).all if one is not jemalloc]
    own_ones = [tcache for tcache in found.values() if not any(tcache.arena in other for other in others)]
    for tcache in own_ones:
        _read_bins(words, layout, tcache)
    return sorted(own_ones, key=lambda one: one.address)


def is_unknown(words: Words, target: Target, owned: Ranges) -> bool:
    """Return whether some thread has bins that look like a tcache's, although no tcache was recognised.

    Such bins are stacks that follow each other in jemalloc's memory. Without tcaches (MALLOC_CONF=tcache:false) such
    bins do not exist.
    """
    ranges = (range_ for pointer, _ in _thread_pointers(target, ()) for range_ in _tls(words, target, pointer))
    for start, end in ranges:
        first_word = -(-start // words.size) * words.size
        values = words.many(first_word, max(0, end - first_word) // words.size) or ()
        step = _BIN // words.size
        for index in range(len(values) - _RUN * step):
            first = values[index]
            if first in owned and first < values[index + (_RUN - 1) * step] < first + _RUN_REACH:
                stacks = values[index : index + _RUN * step : step]
                if all(below < above for below, above in zip(stacks, stacks[1:])):
                    return True
    return False


def _thread_pointers(target: Target, more: Iterable[int]) -> Iterator[tuple[int, Optional[Thread]]]:
    name = target.arch.thread_pointer
    known = set()
    for thread in target.threads():
        pointer = thread.registers.get(name, 0)
        if pointer:
            known.add(pointer)
            yield pointer, thread
    yield from ((pointer, None) for pointer in more if pointer not in known)


def _tls(words: Words, target: Target, pointer: int) -> Iterator[tuple[int, int]]:
    """Yield where a thread has its thread-local variables: around its pointer, and the blocks of its dtv."""
    image = target.image()
    yield from image.covered(max(0, pointer - _REACH), pointer + _REACH)
    for block in dtv_blocks(words, target.arch, pointer):
        if abs(block - pointer) > _REACH:
            yield from image.covered(block, block + _BLOCK_REACH)


def _in_range(words: Words, jemalloc: Jemalloc, start: int, end: int) -> Iterator[Tcache]:
    layout, base = jemalloc.layout, jemalloc.base
    start = -(-start // words.size) * words.size
    values = words.many(start, max(0, end - start) // words.size)
    if not values:
        return
    size = words.size
    for index, value in enumerate(values):
        if value == 0 or value % size:
            continue
        at = start + index * size
        for shape in layout.tcaches:
            if shape.paired:
                # The cheap test comes first: most words are no near pointer.
                if not start <= value < end - shape.descriptor:
                    continue
                tcache = _pair(words, shape, base, at)
            else:
                tcache = _single(words, shape, at - shape.descriptor, value)
                if tcache is None and value in base:
                    tcache = _without_stats(words, jemalloc, shape, at - shape.arena, value)
            if tcache is not None and words.image.read(tcache.address + shape.state, 1)[:1] <= bytes([_NOMINAL]):
                yield tcache


def _pair(words: Words, shape: Tcaches, base: Ranges, address: int) -> Optional[Tcache]:
    """Return the tcache at the address in the layout of 5.3, or None.

    `tcache_t.tcache_slow` and the last word of tcache_slow_t point to each other. So does
    `cache_bin_array_descriptor.bins`; a jemalloc built without statistics has at least an arena instead.
    """
    slow = words.at(address)
    head = words.many(slow, 64) if slow else None
    if not slow or head is None:
        return None
    tail = next((i for i in range(12, 64) if head[i] == address), None)
    arena = head[shape.arena // words.size]
    if tail is None or not (head[shape.descriptor // words.size] == address + shape.small or arena in base):
        return None
    return Tcache(shape, address, slow, None, arena, tail * words.size)


def _single(words: Words, shape: Tcaches, address: int, small: int) -> Optional[Tcache]:
    """Return the tcache at the address in the layout of 5.2: its descriptor points to both of its arrays of bins."""
    if small != address + shape.small:
        return None
    if words.at(address + shape.descriptor + words.size) != address + shape.large:
        return None
    return Tcache(shape, address, address, None, words.at(address + shape.arena) or 0)


def _without_stats(words: Words, jemalloc: Jemalloc, shape: Tcaches, address: int, arena: int) -> Optional[Tcache]:
    """Return a tcache of 5.2 built without statistics, or None. The TSD has the tcache's arena, too."""
    own = words.at(address + shape.tsd_arena) == arena and _has_bins(words, jemalloc, address + shape.small)
    return Tcache(shape, address, address, None, arena) if own else None


def _has_bins(words: Words, jemalloc: Jemalloc, small: int) -> bool:
    """Return whether the small bins of a tcache_t of 5.2 may lie there: their stacks are in jemalloc's memory."""
    bins = words.many(small, 3 * jemalloc.layout.bins)
    if bins is None:
        return False
    return all(n >> 32 <= _MOST_CACHED for n in bins[::3]) and all(at in jemalloc.owned for at in bins[2::3])


def _follow_ring(words: Words, base: Ranges, first: Tcache, found: dict[int, Tcache]) -> None:
    """Add the tcaches of an arena. They hang in a ring (`ql_elm`: next, previous), explicit ones too."""
    shape, at = first.shape, first.slow
    for _step in range(_MOST_RING):
        following = words.at(at + shape.link)
        if not following or following == first.slow:
            return
        if shape.paired:
            address = words.at(following + first.tail)
            tcache = _pair(words, shape, base, address) if address else None
        else:
            small = words.at(following + shape.descriptor)
            tcache = _single(words, shape, following, small) if small else None
        if tcache is None or tcache.address in found:
            return
        found[tcache.address] = tcache
        at = following


def _own_structures(words: Words, jemalloc: Jemalloc) -> list[int]:
    """Return the addresses in jemalloc's own memory that its variables point to: arenas, tables."""
    wanted = list(jemalloc.base)
    places = _engine.find_pointers(words.image, jemalloc.data(), words.size, wanted, _MOST_STRUCTURES)
    values = (words.at(place) or 0 for some in places for place in some)
    return sorted({value for value in values if value % words.size == 0})[:_MOST_STRUCTURES]


def _of_arenas(words: Words, jemalloc: Jemalloc, own: Iterable[int]) -> Iterator[Tcache]:
    """Yield the tcaches in the lists of arenas, which jemalloc keeps with statistics.

    They may belong to threads whose registers the dump lacks. qemu-user's cores lack AArch64's thread pointer.
    """
    for place in own:
        for value in set(words.many(place, _ARENA_WORDS) or ()):
            if value < _REACH or value % words.size or value in jemalloc.base:
                continue
            for shape in jemalloc.layout.tcaches:
                tcache = _listed(words, jemalloc, shape, value)
                if tcache is not None:
                    yield tcache


def _listed(words: Words, jemalloc: Jemalloc, shape: Tcaches, slow: int) -> Optional[Tcache]:
    bins = words.at(slow + shape.descriptor)
    if not bins:
        return None
    if not shape.paired:
        return _single(words, shape, slow, bins)
    own = words.at(bins - shape.small) == slow
    return _pair(words, shape, jemalloc.base, bins - shape.small) if own else None


def _explicit(words: Words, jemalloc: Jemalloc, own: Iterable[int]) -> Iterator[Tcache]:
    """Yield the tcaches of `tcache.create`: `tcaches[]`, a table in jemalloc's own memory.

    In a jemalloc built without statistics only this table leads to them.
    """
    for table in own:
        yield from _table(words, jemalloc, table)


def _table(words: Words, jemalloc: Jemalloc, table: int) -> list[Tcache]:
    """Return the tcaches in what may be `tcaches[]`; [] where it is something else.

    Each entry is a tcache, or was one: then it is 0 or 1, or links to another entry.
    """
    found: list[Tcache] = []
    end = table + _MOST_EXPLICIT * words.size
    for entry in words.many(table, _MOST_EXPLICIT) or ():
        if entry <= 1 or table <= entry < end:
            continue
        tcache = _entry(words, jemalloc, entry)
        if tcache is None:
            return []
        found.append(tcache)
    return found


def _entry(words: Words, jemalloc: Jemalloc, address: int) -> Optional[Tcache]:
    for shape in jemalloc.layout.tcaches:
        if shape.paired:
            tcache = _pair(words, shape, jemalloc.base, address)
        else:
            arena = words.at(address + shape.arena) or 0
            sound = arena in jemalloc.base and _has_bins(words, jemalloc, address + shape.small)
            tcache = Tcache(shape, address, address, None, arena) if sound else None
        if tcache is not None:
            return tcache
    return None


def _read_bins(words: Words, layout: Layout, tcache: Tcache) -> None:
    if tcache.shape.paired:
        _read_stacks(words, tcache, _bins_of(words, layout, tcache))
        own = words.at(tcache.slow + tcache.tail - words.size)  # dyn_alloc
    else:
        _read_counted(words, layout, tcache)
        own = words.at(tcache.address + tcache.shape.arenas_tdata)
    tcache.own.extend([own] if own else [])


def _bins_of(words: Words, layout: Layout, tcache: Tcache) -> int:
    """Return the number of bins. 5.3.0 has all possible bins; 5.3.1, with a larger tcache_slow_t, says how many."""
    behind = tcache.slow - tcache.address
    room = (behind - words.size) // _BIN if behind > 0 else _MOST_BINS
    # next_gc_bin, at 48, then three arrays of a byte for each small bin, dyn_alloc and the tcache
    of_5_3_0 = -(-(52 + 3 * layout.bins) // 8) * 8 + 8
    said = words.at(tcache.slow + 48) or 0
    return min(room, said & 0xFFFFFFFF, _MOST_BINS) if tcache.tail > of_5_3_0 else min(room, _MOST_BINS)


def _read_stacks(words: Words, tcache: Tcache, bins: int) -> None:
    """Read the bins of 5.3: stacks that grow down from `empty`. `head` points to the newest block.

    Only the low 16 bits of the bounds are stored.
    """
    for index in range(bins):
        head, bounds = (words.at(tcache.address + tcache.shape.small + index * _BIN + at) for at in (0, 16))
        if not head or bounds is None:
            continue
        full, empty = bounds >> 16 & 0xFFFF, bounds >> 32 & 0xFFFF
        cached, room = (empty - head) & 0xFFFF, (empty - full) & 0xFFFF
        if head % words.size or cached > room or cached % words.size:
            tcache.problems.append(f"bin {index}: the bounds of its stack ({head:#x}) contradict each other")
        else:
            _take(words, tcache, index, head, cached // words.size)


def _counted_bins(layout: Layout, tcache: Tcache) -> list[tuple[int, int]]:
    """Return the number and the offset of each bin of a tcache of 5.2."""
    shape = tcache.shape
    places = [(index, shape.small + index * _BIN) for index in range(layout.bins)]
    return places + [(layout.bins + i, shape.large + i * _BIN) for i in range(_MOST_BINS - layout.bins)]


def _read_counted(words: Words, layout: Layout, tcache: Tcache) -> None:
    """Read the bins of 5.2: `avail` points behind the `ncached` blocks."""
    for index, offset in _counted_bins(layout, tcache):
        counts, avail = words.at(tcache.address + offset), words.at(tcache.address + offset + 16)
        if counts is None or not avail:
            continue
        count = counts >> 32
        if count > _MOST_CACHED or avail % words.size:
            tcache.problems.append(f"bin {index}: its count ({count}) is impossible")
            continue
        # The stacks of all bins are one block. The first stack begins where none of it is used.
        tcache.own.append(avail - words.size)
        _take(words, tcache, index, avail - count * words.size, count)


def bin_arrays(words: Words, layout: Layout, tcache: Tcache) -> list[tuple[int, int, int]]:
    """Return for each bin of a tcache its number, and where the array of its blocks begins and ends.

    The first begin is 0 in 5.2: the array begins where the memory of all arrays does.
    """
    found: list[tuple[int, int, int]] = []
    if tcache.shape.paired:
        for index in range(_bins_of(words, layout, tcache)):
            head, bounds = (words.at(tcache.address + tcache.shape.small + index * _BIN + at) for at in (0, 16))
            if head and bounds is not None:
                end = head + ((bounds >> 32) - head & 0xFFFF)
                found.append((index, end - ((bounds >> 32) - (bounds >> 16) & 0xFFFF), end))
        return [each for each in found if each[1] < each[2]]
    end = 0
    for index, offset in _counted_bins(layout, tcache):
        avail = words.at(tcache.address + offset + 16)
        if not avail:
            continue
        if not found or end < avail <= end + _MOST_CACHED * words.size:
            found.append((index, end, avail))
            end = avail
    return found


def _take(words: Words, tcache: Tcache, index: int, head: int, count: int) -> None:
    if not count:
        return
    blocks = words.many(head, count)
    if blocks is None:
        tcache.problems.append(f"bin {index}: its stack at {head:#x} is not in the dump")
    else:
        tcache.cached[index] = blocks


def tcache_memory(layout: Layout, tcache: Tcache) -> Iterator[tuple[int, int]]:
    """Yield the memory of a tcache and of the radix tree cache beside it.

    `rtree_ctx` holds addresses of GiBs, not pointers.
    """
    shape = tcache.shape
    first, last = sorted((tcache.address, tcache.slow))
    if shape.paired:
        yield first, max(last + tcache.tail, tcache.address + shape.small + _BIN * layout.bins)
    else:
        yield tcache.address - shape.before, tcache.address + shape.large
