"""Find the arenas of glibc: `malloc_state` of the main arena and of every thread arena."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from dmods import _engine
from dmods.allocators.glibc.parameters import find_parameters
from dmods.allocators.glibc.structures import (
    BIN_LINKS,
    BINMAP_BYTES,
    Arena,
    HeapInfo,
    Malloc,
)
from dmods.base.ranges import Ranges
from dmods.base.words import GRANULE, Words
from dmods.target import AddressRange

MOST_ARENAS = 65536


# A heap is aligned to HEAP_MAX_SIZE: 2 * DEFAULT_MMAP_THRESHOLD_MAX (64 MiB, or 1 MiB where words have 4 bytes); with
# the tunable glibc.malloc.hugetlb of 2.35 to 2.42 it is four huge pages.
HEAP_SIZES = {8: (64 << 20, 8 << 20, 4 << 30, 2 << 30, 128 << 20, 1 << 20), 4: (1 << 20, 8 << 20, 16 << 20)}


def find_mallocs(words: Words, mappings: Sequence[AddressRange], hint: Optional[int] = None) -> list[Malloc]:
    """Return every malloc in the process.

    `hint` is the address of `main_arena` where a symbol names it. It is checked like any other candidate.
    """
    # main_arena is initialised data (``.next = &main_arena``), so it lies in a writable file mapping.
    data = [(m.start, m.end) for m in mappings if "w" in m.flags and m.path is not None]
    found = _mallocs(words, data, mappings, hint)
    if not found:
        # The dump has no file names, or the program unpacked itself: search everywhere.
        rest = [(m.start, m.end) for m in mappings if "w" in m.flags and m.anonymous]
        found = _mallocs(words, rest, mappings, None)
    return found


def _mallocs(
    words: Words, ranges: list[tuple[int, int]], mappings: Sequence[AddressRange], hint: Optional[int]
) -> list[Malloc]:
    candidates = _engine.find_bins(words.image, ranges, words.size)
    if hint is not None:
        header = _header_words(words.size)
        candidates = [hint + size for size in header] + candidates
    built = [
        malloc
        for bins in dict.fromkeys(candidates)
        if _plausible_bins(words, bins) and (malloc := _malloc(words, bins, mappings)) is not None
    ]
    # Where candidates overlap, the one whose ring of arenas closes is right.
    out: list[Malloc] = []
    for malloc in sorted(built, key=lambda m: (len(m.problems), -len(m.arenas))):
        main = malloc.arenas[0]
        if not any(main.address < other.end and other.address < main.end for m in out for other in m.arenas):
            out.append(malloc)
    return sorted(out, key=lambda m: m.arenas[0].address)


def _header_words(word: int) -> tuple[int, ...]:
    """Return the possible distances from malloc_state to its bins, in words, the most likely first.

    With fastbins and have_fastchunks (2.27 to 2.42), without have_fastchunks, without fastbins (2.43).
    """
    if word == 8:
        return (0x70, 0x68, 0x18)
    return (0x40, 0x3C, 0x10)


def _plausible_bins(words: Words, bins: int) -> bool:
    """Return whether at least half of the bins make sense."""
    return _sound_bins(words, bins) >= BIN_LINKS // 4


def _sound_bins(words: Words, bins: int, mapped: Optional[Ranges] = None) -> int:
    """Return how many bins are empty (their links lead back to themselves) or lead to a chunk that leads back.

    With ``mapped``, the mapped memory, a bin that leads to memory that the dump lacks counts, too.
    """
    links = words.many(bins, BIN_LINKS)
    if links is None:
        return 0
    good = 0
    for i in range(0, BIN_LINKS, 2):
        self_address = bins + i * words.size - 2 * words.size
        if links[i] == links[i + 1] == self_address:
            good += 1
        elif links[i]:
            # Where the offset is wrong, empty bins lead to other bins.
            within, odd = divmod(links[i] + 3 * words.size - bins, words.size)
            back = links[within] if 0 <= within < BIN_LINKS and not odd else words.at(links[i] + 3 * words.size)
            absent = back is None and mapped is not None and links[i] % GRANULE == 0 and links[i] in mapped
            good += back == self_address or absent
    return good


def _malloc(words: Words, bins: int, mappings: Sequence[AddressRange]) -> Optional[Malloc]:
    size = words.size
    ring, closed = _ring(words, bins, Ranges((m.start, m.end) for m in mappings if "w" in m.flags))
    begins = [address for address in ring if bins - 32 * size <= address <= bins - min(_header_words(size))]
    address = begins[0] if begins else None
    malloc = Malloc([])
    cut = not closed and bool(ring) and _is_absent(words, ring[-1], mappings)
    if address is None:
        fitting = [bins - header for header in _header_words(size) if _header_fits(words, bins - header, bins)]
        if not fitting:
            return None
        address = fitting[0]
        if cut:
            malloc.gaps.append("an arena is not in the dump: others may be unknown")
        else:
            malloc.problems.append("the ring of arenas does not lead back to the main arena: it is damaged")
    elif not closed:
        (malloc.gaps if cut else malloc.problems).append(
            "an arena is not in the dump: others may be unknown" if cut else "the ring of arenas is damaged"
        )
    delta = bins - address
    blank = next((at for at in ring if closed and _is_blank(words, at + delta)), None)
    if blank is not None:
        ring, address = [*ring[:-1], address], blank
    main = read_arena(words, address, delta, main=True)
    if main is None:
        return None
    if cut and _chain(words, main):
        main.main = False  # a thread arena: the dump lacks the main arena
    malloc.arenas.append(main)
    for other in ring:
        if other != address:
            arena = read_arena(words, other, delta, main=False)
            if arena is None:
                absent = _is_absent(words, other, mappings)
                (malloc.gaps if absent else malloc.problems).append(f"the arena at {other:#x} is not in the dump")
                malloc.zeroed.extend([other] if _is_zeroed(words, other) else [])
                continue
            malloc.arenas.append(arena)
    _add_heaps(words, malloc, delta, mappings)
    main_range = next((m for m in mappings if address in m), None)
    if main_range is not None and main.main:
        malloc.parameters = find_parameters(words, main_range, main)
    return malloc


def _ring(words: Words, bins: int, mapped: Ranges) -> tuple[list[int], bool]:
    """Return the arenas from the `next` of the one with these bins on, and whether they lead back to it.

    The main arena may be blank. Where the first call of a process is free(), that call makes the thread's cache, and
    the cache comes from a new thread arena: only malloc() sets the main arena up (malloc.c of 2.26 to 2.41,
    MAYBE_INIT_TCACHE in __libc_free, and arena_get2 in arena.c).
    """
    to_next = BIN_LINKS * words.size + BINMAP_BYTES
    ring: list[int] = []
    at = words.at(bins + to_next)
    seen: set[int] = set()
    while at and at not in seen and len(ring) < MOST_ARENAS:
        seen.add(at)
        ring.append(at)
        if bins - 32 * words.size <= at < bins:
            return ring, True
        # The bins of the other arenas have the same offset as those of the main arena, which is not known yet: try all.
        # A few words off, most bins still look empty: the offset at which most bins make sense is right.
        sound, header = max((_sound_bins(words, at + header, mapped), header) for header in _header_words(words.size))
        if sound < BIN_LINKS // 4:
            header = next((each for each in _header_words(words.size) if _is_blank(words, at + each)), 0)
        at = words.at(at + header + to_next) if header else None
    return ring, False


def _is_blank(words: Words, bins: int) -> bool:
    """Return whether no bin, and no field up to `next`, was ever set, and `next` was."""
    links = words.many(bins - 2 * words.size, 2 + BIN_LINKS + BINMAP_BYTES // words.size + 1)
    return links is not None and not any(links[:-1]) and links[-1] != 0


def _header_fits(words: Words, address: int, bins: int) -> bool:
    mutex, flags = words.int32(address), words.int32(address + 4)
    return mutex in (0, 1, 2) and flags is not None and 0 <= flags < 8


def read_arena(words: Words, address: int, delta: int, main: bool) -> Optional[Arena]:
    """Return the `malloc_state` at `address`, whose bins are `delta` bytes on. None where the dump does not have it."""
    size = words.size
    bins = address + delta
    head = words.many(address, delta // size)
    tail = words.many(bins + BIN_LINKS * size + BINMAP_BYTES, 5)
    mutex, flags = words.int32(address), words.int32(address + 4)
    if head is None or tail is None or mutex is None or flags is None:
        return None
    if not main and _is_zeroed(words, address):
        return None
    count = {8: 10, 4: 11}[size]  # NFASTBINS
    fastbins = tuple(head[-2 - count : -2]) if len(head) >= count + 2 + 8 // size else ()
    following, _next_free, attached, system_mem, max_system_mem = tail
    blank = main and _is_blank(words, bins)
    arena = Arena(
        address,
        bins,
        main,
        size,
        flags,
        bins - 2 * size if blank else head[-2],
        following,
        attached,
        system_mem,
        max_system_mem,
        mutex != 0,
        fastbins,
        blank,
    )
    if system_mem > max_system_mem:
        arena.problems.append(f"its system_mem ({system_mem}) is above its max_system_mem ({max_system_mem})")
    return arena


def _add_heaps(words: Words, malloc: Malloc, delta: int, mappings: Sequence[AddressRange]) -> None:
    """Add the heaps of each thread arena: by the chain from its top, else by where heaps can begin."""
    scanned: Optional[dict[int, list[HeapInfo]]] = None
    for arena in malloc.arenas:
        if arena.main:
            continue
        arena.heaps = _chain(words, arena)
        if not arena.heaps:
            if scanned is None:
                scanned = _scan(words, mappings)
            arena.heaps = sorted(scanned.get(arena.address, []), key=lambda heap: heap.start)
            absent = _absent_heap(words, arena, mappings)
            if absent is not None:
                arena.gaps.append("a heap of it is not in the dump: heaps found by their alignment instead")
                malloc.zeroed.extend([absent] if _is_zeroed(words, absent) else [])
            else:
                arena.problems.append("its chain of heaps is damaged: heaps found by their alignment instead")
    if malloc.problems or malloc.gaps:
        # A damaged ring hides arenas: search for them.
        known = {arena.address for arena in malloc.arenas}
        for address, heaps in (scanned or _scan(words, mappings)).items():
            found = read_arena(words, address, delta, main=False)
            if address not in known and found is not None and _plausible_bins(words, found.bins):
                found.heaps = heaps
                malloc.arenas.append(found)


def heap_at(words: Words, start: int, arena: Optional[int] = None) -> Optional[tuple[int, int, HeapInfo]]:
    """Return (its arena, the previous heap, the heap) of the `heap_info` at `start`; None: it is not valid."""
    head = words.many(start, 4)
    if head is None:
        return None
    ar_ptr, prev, size, mprotect_size = head
    if not 4096 <= size <= mprotect_size or size % 4096 or mprotect_size % 4096 or mprotect_size > 1 << 40:
        return None
    if arena is not None and ar_ptr != arena:
        return None
    # In the arena's first heap, malloc_state follows the header directly. heap_info has one size in a process.
    return ar_ptr, prev, HeapInfo(start, size, 0)


def _is_absent(words: Words, address: int, mappings: Sequence[AddressRange]) -> bool:
    """Return whether the address is mapped and the dump does not have what is there."""
    absent = words.at(address) is None or _is_zeroed(words, address)
    return absent and any(address in mapping for mapping in mappings)


def _is_zeroed(words: Words, address: int) -> bool:
    """Return whether zeros stand where a heap or a thread arena begins. malloc has set the bins of each.

    gdb writes zeros for memory that it could not read.
    """
    found = words.many(address, BIN_LINKS)
    return found is not None and not any(found)


def _chain(words: Words, arena: Arena) -> list[HeapInfo]:
    for alignment in HEAP_SIZES[words.size]:
        start = arena.top & ~(alignment - 1)
        heaps: list[HeapInfo] = []
        seen: set[int] = set()
        while start not in seen:
            seen.add(start)
            found = heap_at(words, start, arena.address)
            if found is None or len(heaps) > MOST_ARENAS:
                break
            _, prev, heap = found
            heaps.append(heap)
            if prev == 0:
                header = arena.address - start
                if 4 * words.size <= header <= 256:
                    return sorted((HeapInfo(h.start, h.size, header) for h in heaps), key=lambda h: h.start)
                break
            start = prev
    return []


def _absent_heap(words: Words, arena: Arena, mappings: Sequence[AddressRange]) -> Optional[int]:
    """Return where a heap begins to which the chain from top on leads, and which is not in the dump, or None."""
    for alignment in HEAP_SIZES[words.size]:
        start = arena.top & ~(alignment - 1)
        for _step in range(MOST_ARENAS):
            found = heap_at(words, start, arena.address)
            if found is None:
                if _is_absent(words, start, mappings):
                    return start
                break
            start = found[1]
    return None


def _scan(words: Words, mappings: Iterable[AddressRange]) -> dict[int, list[HeapInfo]]:
    """Return the heaps by the address of their arena, searched wherever a heap may begin."""
    alignment = HEAP_SIZES[words.size][0]
    found: dict[int, list[HeapInfo]] = {}
    headers: dict[int, int] = {}
    for mapping in mappings:
        if "w" not in mapping.flags or not mapping.anonymous:
            continue
        # Only dumped bytes are searched: the size of a mapping is a claim of a program header.
        for start in _aligned(words.image.covered(mapping.start, mapping.end), alignment):
            info = heap_at(words, start)
            if info is None or info[0] == 0 or info[0] % words.size:
                continue
            arena, prev, heap = info
            found.setdefault(arena, []).append(heap)
            if prev == 0 and 4 * words.size <= arena - start <= 256:
                headers[arena] = arena - start
    return {
        arena: [HeapInfo(heap.start, heap.size, headers[arena]) for heap in heaps]
        for arena, heaps in found.items()
        if arena in headers
    }


def _aligned(ranges: Iterable[tuple[int, int]], alignment: int) -> Iterable[int]:
    for start, end in ranges:
        yield from range(-(-start // alignment) * alignment, end, alignment)


def first_chunk(arena: Arena, heap: HeapInfo) -> int:
    """Return where the chunks of a heap begin.

    They begin after `heap_info`, and in the arena's first heap after its `malloc_state`, at malloc's alignment
    (_int_new_arena in arena.c).
    """
    start = heap.start + heap.header
    if start == arena.address:
        start = arena.end
    header = 2 * arena.word
    return -(-(start + header) // GRANULE) * GRANULE - header
