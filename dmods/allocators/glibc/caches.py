"""Free chunks that carry the in-use bit: those in tcaches and fastbins.

A tool that does not know these lists reports their chunks as leaked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Optional

from dmods.allocators.numbers import NO_ARENA
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.base.words import GRANULE, Words

if TYPE_CHECKING:
    from dmods._engine import HeapBuilder, Index
    from dmods.allocators.glibc.structures import Arena

SMALL_BINS = 64  # TCACHE_MAX_BINS until 2.41, TCACHE_SMALL_BINS since 2.42
_SLACK = 256  # bytes by which a chunk may be too large, where a thread points to it
_FREE = 1  # a block's state, as the engine numbers it
_MOST_DAMAGED = 2  # damaged bins, and damaged counters, that a tcache may have and still be believed


@dataclass(frozen=True)
class FreeList:
    """A bin of a tcache, or a fastbin. `head` points to user memory (tcache) or to a chunk header (fastbin)."""

    name: str
    head: int
    to_user: bool
    least: int  # chunk sizes that belong there
    most: int
    said: Optional[int] = None  # the number of chunks by the tcache's counter


@dataclass
class Caches:
    """The content of the lists, after they were followed."""

    tcaches: list[int] = field(default_factory=list)  # user addresses of tcache_perthread_struct
    lists: list[FreeList] = field(default_factory=list)
    protected: bool = True  # safe-linking, glibc 2.32
    fast_bytes: dict[int, int] = field(default_factory=dict)  # arena number -> chunk bytes in its fastbins
    fast_count: dict[int, int] = field(default_factory=dict)
    tcache_count: int = 0
    tcache_bytes: int = 0  # chunk bytes
    problems: list[tuple[str, str, int]] = field(default_factory=list)  # (list, what, where)
    owners: dict[str, int] = field(default_factory=dict)  # fastbin -> arena number
    found: dict[str, int] = field(default_factory=dict)  # list -> chunks on it
    orphans: int = 0  # chunks that damaged lists cut off
    open_ended: set[str] = field(default_factory=set)  # lists that go on in memory of no known heap: see _was_taken
    keys: set[int] = field(default_factory=set)  # the second word of chunks in tcaches: see tcache_keys


@dataclass(frozen=True)
class _Shape:
    """A form of `tcache_perthread_struct`: `bins` counters of `width` bytes, then `bins` pointers."""

    bins: int
    width: int

    def size(self, word: int) -> int:
        return self.entries(word) + self.bins * word

    def entries(self, word: int) -> int:
        return -(-self.bins * self.width // word) * word

    def chunks(self, word: int) -> tuple[int, int]:
        """Return the possible sizes of the chunk that holds the structure.

        It is the right size, or the next where the remainder was too small to be a chunk.
        """
        right = max(-(-(self.size(word) + word) // GRANULE) * GRANULE, 4 * word)
        return right, right + GRANULE


# 2.26 to 2.29: char counts[64]; 2.30 to 2.41: uint16_t counts[64]; since 2.42: uint16_t num_slots[76] (free slots,
# not counts).
_SHAPES = (_Shape(64, 2), _Shape(76, 2), _Shape(64, 1))


class Candidates(NamedTuple):
    """The places where a `tcache_perthread_struct` may be."""

    alike: Sequence[int]  # chunks that the engine found to look like a tcache
    pointers: Iterable[int]  # words near a thread pointer: one of them is the thread's ``tcache``
    first: Sequence[int]  # each arena's first chunk: threads' tcaches lie there, so an empty one is believed


def watched(word: int) -> list[tuple[int, int, int]]:
    """Return the known forms of `tcache_perthread_struct` as `_engine.HeapBuilder` takes them.

    The engine does not report empty structures. They hold no chunks.
    """
    return [(size, shape.bins, shape.width) for shape in _SHAPES for size in shape.chunks(word)]


def classes(index: int, word: int) -> tuple[int, int]:
    """Return the chunk sizes of tcache bin `index`: one size each, then (2.42) one power of two each."""
    step = GRANULE
    least = 4 * word if word == 8 else GRANULE
    if index < SMALL_BINS:
        size = least + index * step
        return size, size
    # large_csize2tidx: bins split at powers of two above MAX_TCACHE_SMALL_SIZE.
    largest = least + (SMALL_BINS - 1) * step
    low = 1 << (largest.bit_length() - 1 + index - SMALL_BINS)
    return max(low, largest + step), 2 * low - 1


def find_tcaches(words: Words, builder: HeapBuilder, where: Candidates) -> list[tuple[int, _Shape]]:
    """Return every `tcache_perthread_struct`: the sound ones, then damaged ones that a thread points to.

    All of them are of one glibc and have its form.
    """
    header = 2 * words.size
    alike = {chunk + header for chunk in where.alike}
    beginnings = {chunk + header for chunk in where.first}
    pointed = set(where.pointers)
    shapes = {at: _shapes_at(words, builder, at, trusted=at in pointed) for at in sorted(alike | beginnings | pointed)}
    found: dict[int, _Shape] = {}
    for address, fitting in shapes.items():
        for shape in fitting:
            # A cleared block of the program is no tcache, even if some number of bins would fill it.
            may_be_empty = address in beginnings and shape in _SHAPES
            if _is_tcache(words, builder, address, shape, trusted=False, may_be_empty=may_be_empty):
                found[address] = shape
                break
    known = set(found.values())
    for address in pointed.difference(found):
        for shape in known.intersection(shapes[address]) if known else shapes[address]:
            if _is_tcache(words, builder, address, shape, trusted=True, may_be_empty=False):
                found[address] = shape
                break
    return sorted(found.items(), key=lambda one: one[0])


def _shapes_at(words: Words, builder: HeapBuilder, address: int, *, trusted: bool) -> list[_Shape]:
    """Return the forms that the block at the address may hold."""
    block = builder.find(address)
    if block is None or block.address != address or block.state == _FREE:
        return []
    # With a small mmap_threshold the tcache has a mapping of its own, of whole pages.
    slack = GRANULE if not trusted else block.size if block.arena == NO_ARENA else _SLACK
    return _shapes_of(block.size + words.size, words.size, slack)


def _shapes_of(chunk: int, word: int, slack: int) -> list[_Shape]:
    """Return the forms that a chunk of this size may hold, if it is at most `slack` bytes too large.

    These are the known forms, and any other number of bins with 16-bit counters.
    """
    known = [shape for shape in _SHAPES if 0 <= chunk - shape.chunks(word)[0] <= slack]
    bins = (chunk - word) // (word + 2)
    other = [_Shape(n, 2) for n in (bins, bins - 1) if SMALL_BINS <= n <= 256 and chunk in _Shape(n, 2).chunks(word)]
    return known + [shape for shape in other if shape not in known]


def _is_tcache(
    words: Words, builder: HeapBuilder, address: int, shape: _Shape, *, trusted: bool, may_be_empty: bool
) -> bool:
    """Return whether counters and entries agree, and every entry is a chunk of its bin's size.

    `trusted`: a thread points to the block, so a little damage is no evidence against it.
    """
    word = words.size
    data = words.image.read(address, shape.size(word))
    if len(data) != shape.size(word):
        return False
    counts = memoryview(data)[: shape.bins * shape.width].cast("H" if shape.width == 2 else "B")
    entries = memoryview(data)[shape.entries(word) :].cast("Q" if word == 8 else "I")
    filled = [i for i in range(shape.bins) if entries[i]]
    if not filled and not may_be_empty:
        return False
    fitting = [i for i in filled if _entry_fits(builder, entries[i], i, word)]
    bad = len(filled) - len(fitting)
    empty = [counts[i] for i in range(shape.bins) if not entries[i]]
    wrong = sum(1 for count in empty if count) + sum(1 for i in filled if not counts[i])
    right = sum(1 for i in fitting if counts[i])
    # num_slots (2.42) counts the free slots of each bin, so every empty bin shows the limit.
    limits = set(empty) or {1 << 16}
    if len(limits) == 1 and 0 not in limits and all(counts[i] < max(limits) for i in filled):
        wrong, right = 0, len(fitting)
    if not trusted:
        return bad == wrong == 0
    # In any block, some words happen to be pointers to blocks of a fitting size. But all counters agree with the
    # entries only in a tcache.
    return bad <= _MOST_DAMAGED and wrong <= _MOST_DAMAGED and (bad + wrong <= right or wrong == 0)


def _entry_fits(builder: HeapBuilder, entry: int, index: int, word: int) -> bool:
    block = builder.find(entry)
    least, most = classes(index, word)
    return block is not None and block.address == entry and least <= block.size + word <= most


def tcache_lists(words: Words, address: int, shape: _Shape) -> list[FreeList]:
    """Return the free lists of the tcache at the address."""
    entries = words.many(address + shape.entries(words.size), shape.bins) or ()
    data = words.image.read(address, shape.bins * shape.width)
    counters = memoryview(data).cast("H" if shape.width == 2 else "B")
    empty = [counters[i] for i, head in enumerate(entries) if not head]
    # In an empty bin, free slots (glibc 2.42) show the limit, and counts show 0.
    limit = max(empty) if sum(map(bool, empty)) > len(empty) // 2 else None
    return [
        FreeList(
            f"tcache {address:#x} bin {i}",
            head,
            True,
            *classes(i, words.size),
            said=counters[i] if limit is None else limit - counters[i],
        )
        for i, head in enumerate(entries)
        if head
    ]


def fastbin_lists(number: int, arena: Arena) -> list[FreeList]:
    """Return the fastbins of an arena (fastbin_index: sizes 16 bytes apart, 8 where words have 4)."""
    out = []
    for i, head in enumerate(arena.fastbins):
        size = (i + 2) * 2 * arena.word
        if head:
            out.append(FreeList(f"arena {number} fastbin {size}", head, False, size, size))
    return out


def is_protected(words: Words, builder: HeapBuilder, lists: Sequence[FreeList]) -> bool:
    """Return whether the lists use safe-linking: a vote of the first links, read both ways."""
    votes = 0
    for free in lists[:256]:
        user = free.head if free.to_user else free.head + 2 * words.size
        stored = words.at(user)
        if stored is None:
            continue
        plain, revealed = (_leads_on(words, builder, free, link) for link in (stored, stored ^ (user >> 12)))
        votes += revealed - plain
    return votes >= 0


def _leads_on(words: Words, builder: HeapBuilder, free: FreeList, link: int) -> bool:
    if link == 0:
        return True
    user = link if free.to_user else link + 2 * words.size
    block = builder.find(user)
    return block is not None and block.address == user and free.least <= block.size + words.size <= free.most


def release(words: Words, builder: HeapBuilder, arenas: Sequence[Arena], where: Candidates) -> Caches:
    """Find and follow every list, so that the engine counts its chunks as free."""
    caches = Caches()
    for address, shape in find_tcaches(words, builder, where):
        caches.tcaches.append(address)
        caches.lists.extend(tcache_lists(words, address, shape))
    for number, arena in enumerate(arenas):
        for free in fastbin_lists(number, arena):
            caches.lists.append(free)
            caches.owners[free.name] = number
    damaged: list[FreeList] = []
    caches.protected = is_protected(words, builder, caches.lists)
    for free in caches.lists:
        count, size, problem = builder.follow(free.head, free.to_user, caches.protected, free.least, free.most)
        caches.found[free.name] = count
        owner = caches.owners.get(free.name)
        if owner is None:
            caches.tcache_count += count
            caches.tcache_bytes += size
        else:
            caches.fast_count[owner] = caches.fast_count.get(owner, 0) + count
            caches.fast_bytes[owner] = caches.fast_bytes.get(owner, 0) + size
        if problem and _was_taken(words, builder, free, problem[1]):
            caches.open_ended.add(free.name)
        elif problem:
            caches.problems.append((free.name, *problem))
            damaged.append(free)
    caches.keys = tcache_keys(words, builder, caches)
    _release_orphans(words, builder, caches, damaged)
    return caches


def _was_taken(words: Words, builder: HeapBuilder, free: FreeList, where: int) -> bool:
    """Return whether free() took memory for a block that is in no known heap, but has a fitting size before it.

    It is memory of the program, or of an arena that the dump lacks. The list is sound.
    """
    field = words.at(where - words.size) if free.to_user and where % GRANULE == 0 and where > words.size else None
    return field is not None and free.least <= field & ~7 <= free.most and builder.find(where) is None


def tcache_keys(words: Words, builder: HeapBuilder, caches: Caches) -> set[int]:
    """Return the second words of the chunks in tcaches, which are one random `tcache_key`.

    Until 2.33 the key is the address of the tcache. The first good chunk of a list shows the key.
    """
    keys: set[int] = set()
    for free in caches.lists:
        if free.to_user and (block := builder.find(free.head)) is not None and block.state == _FREE:
            key = words.at(block.address + words.size)
            if key is not None and (key in caches.tcaches or key > 1 << (4 * words.size)):
                keys.add(key)
    return keys


def _release_orphans(words: Words, builder: HeapBuilder, caches: Caches, damaged: Sequence[FreeList]) -> None:
    """Release the chunks that damaged lists cut off. In a tcache every chunk has its key."""
    keys = caches.keys
    done: set[tuple[int, int, bool]] = set()
    for free in damaged:
        kind = (free.least, free.most, free.to_user)
        if kind in done:
            continue
        done.add(kind)
        ways: Iterable[Optional[int]] = keys if free.to_user and keys else (None,)
        for way in ways:
            caches.orphans += builder.release_orphans(free.to_user, caches.protected, free.least, free.most, way)


def list_holding(index: Index, caches: Caches, address: int) -> Optional[FreeList]:
    """Return the list that a free block is on; None for a block in the arena's bins."""
    for free in caches.lists:
        _problem, blocks = index.follow(free.head, free.to_user, caches.protected, free.least, free.most)
        if address in blocks:
            return free
    return None


def cached_by_arena(words: Words, index: Index, caches: Caches) -> dict[int, tuple[int, int]]:
    """Return (chunk bytes, chunks) in tcaches, by the number of the arena that the chunks came from."""
    out: dict[int, tuple[int, int]] = {}
    for free in caches.lists:
        if not free.to_user:
            continue
        for address in index.follow(free.head, True, caches.protected, free.least, free.most)[1]:
            block = index.find(address)
            if block is not None:
                size, count = out.get(block.arena, (0, 0))
                out[block.arena] = (size + block.size + words.size, count + 1)
    return out
