"""The walkers of ``walk`` for a process. A new walker is one entry in WALKERS."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Callable, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.base.regex import regex
from dmods.commands._records import address_of, event
from dmods.commands._walker import Rows, Walker
from dmods.errors import ASK_WHATIS, UsageError
from dmods.graph.owners.heap_owners import find_owners
from dmods.graph.owners.root_paths import path_to
from dmods.graph.roots.named_roots import named_roots
from dmods.graph.types.typed_rows import typed_blocks
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE, Block
from dmods.heap.blocks import EVERYWHERE, STATES, addresses, arena_name, arena_of, runs_of
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.records.model import Entry, Record, Transaction
from dmods.records.sources import require_records
from dmods.report import Column, Value
from dmods.target import Target

_MOST_REFERRERS = 1 << 16  # words
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZES = regex(r"([0-9]+)([KMG]?)(?:(\.\.)(?:([0-9]+)([KMG]?))?)?", re.IGNORECASE)


class Sizes(NamedTuple):
    """A range of block sizes, in usable bytes. Both ends belong to it."""

    least: int
    most: int

    def __contains__(self, size: object) -> bool:
        return isinstance(size, int) and self.least <= size <= self.most


def parse_sizes(text: str) -> Sizes:
    """Return the sizes that ``64``, ``64..128``, ``1K..`` stand for. K, M and G are powers of 1024."""
    found = _SIZES.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is not a size: give N, N..M or N.., such as 64, 1K..4K or 1M..")
    low, unit, dots, high, high_unit = found.groups()
    least = int(low) * _UNITS[unit.upper()]
    if dots is None:
        return Sizes(least, least)
    most = int(high) * _UNITS[high_unit.upper()] if high is not None else 1 << 64
    if most < least:
        raise argparse.ArgumentTypeError(f"{text} has no sizes: the first number is the larger one")
    return Sizes(least, most)


class Query(NamedTuple):
    """The walk that a user asks for.

    ``within`` narrows the walk to what an address belongs to, ``sizes`` to blocks of these sizes, ``type`` and
    ``shape`` to blocks of this type or shape. ``brief``: only the addresses are wanted, so rows may have one cell.
    """

    within: Optional[int] = None
    sizes: Optional[Sizes] = None
    brief: bool = False
    type: Optional[str] = None
    shape: Optional[str] = None

    @property
    def is_plain(self) -> bool:
        """Return whether every block of the walk is wanted, and only its address."""
        return self.brief and self.sizes is None and self.type is None and self.shape is None


_BLOCK = (
    Column("address", "address"),
    Column("size", "bytes"),
    Column("state"),
    Column("arena"),
    Column("kept_count", "count", null="it is not a direct leak", about="what it keeps alive"),
    Column("kept_bytes", "bytes", null="it is not a direct leak", about="what it keeps alive"),
)
_LEAK = (
    Column("address", "address", about="the record of the block; the block where nothing is recorded"),
    *_BLOCK[1:],
    Column("buffer", "address"),
)
_REFERRER = (
    Column("address", "address"),
    Column("to", "address", about="how far into the buffer it points"),
    Column("block", "address", null="no block holds the word"),
    Column("state", null="no block holds the word"),
)
_ENTRY = (
    Column("address", "address"),
    Column("buffer", "address"),
    Column("event", about="live, allocated or freed"),
    Column("requested", "bytes"),
    Column("timestamp", "time"),
    Column("thread", "count", null="it is not known"),
)
_ARENA = (
    Column("address", "address"),
    Column("arena"),
    Column("top", "address", null="the allocator has none"),
    Column("system_bytes", "bytes"),
    Column("attached_threads", "count"),
)
_THREAD = (
    Column("address", "address", null="the dump does not have the thread pointer"),
    Column("tid", "count"),
    Column("name", null="it is not known"),
)
_MAPPING = (
    Column("address", "address"),
    Column("end", "address"),
    Column("flags"),
    Column("path", null="the mapping is anonymous"),
    Column("offset", "address", null="the mapping is anonymous"),
)


def _blocks(heap: ProcessHeap, ranges: Sequence[tuple[int, int]], states: Sequence[int], query: Query) -> Rows:
    if query.type is not None or query.shape is not None:
        return _rows_of(heap, _of_type(heap, ranges, states, query), query)
    if query.is_plain:
        return zip(addresses(heap, ranges, *states))
    return _rows_of(heap, addresses(heap, ranges, *states), query)


def _of_type(
    heap: ProcessHeap, ranges: Sequence[tuple[int, int]], states: Sequence[int], query: Query
) -> Iterator[int]:
    """Yield the addresses of the blocks of the wanted type or shape."""
    types, inside = typed_blocks(heap.target), Ranges(ranges)
    wanted = query.type if query.type is not None else query.shape
    kinds = types.matching(wanted or "", shape=query.type is None)
    if not kinds.kinds and not kinds.types:
        what = "type" if query.type is not None else "shape"
        raise UsageError(f"no block has the {what} {wanted}", "`types` lists the types and shapes, with their ids")
    return (at for at in types.addresses(kinds, states) if ranges == [EVERYWHERE] or at in inside)


def _rows_of(heap: ProcessHeap, found: Iterable[int], query: Query) -> Iterator[Sequence[Value]]:
    """Yield the cells of _BLOCK for the blocks at these addresses that have the wanted size."""
    for address in found:
        block = heap.block_at(address)
        if block is None or (query.sizes is not None and block.size not in query.sizes):
            continue
        if query.brief:
            yield (address,)
        else:
            kept = (block.kept_count, block.kept_bytes) if block.state == DIRECT else (None, None)
            yield address, block.size, STATES[block.state], arena_name(block.arena), *kept


def _in_arena(*states: int) -> Callable[[Target, Query], Rows]:
    def rows(target: Target, query: Query) -> Rows:
        heap = find_heap(target)
        if query.within is None:
            return _blocks(heap, [EVERYWHERE], states, query)
        number = arena_of(heap, query.within)
        if number is None:
            raise UsageError(f"{query.within:#x} belongs to no arena", "`walk arena` lists them")
        return _blocks(heap, runs_of(heap, number), states, query)

    return rows


def _recorded_leaks(target: Target, query: Query) -> Rows:
    """Return the bufctls of direct leaks; the blocks themselves where there are no records."""
    heap = find_heap(target)
    if not heap.records:
        plain = _leaked(DIRECT)(target, query)
        return plain if query.brief else ((*row, row[0]) for row in plain)
    wanted = (each for each in heap.blocks(DIRECT) if query.sizes is None or each.size in query.sizes)
    if query.within is None:
        return _with_bufctls(heap, wanted, None)
    entry = heap.records.at(query.within)
    block = heap.block_at(entry.address if isinstance(entry, Record) else query.within)
    if block is None or block.state not in (DIRECT, INDIRECT):
        raise UsageError(f"{query.within:#x} is in no leaked block and is not the bufctl of one", ASK_WHATIS)
    return _with_bufctls(heap, wanted, block)


def _with_bufctls(heap: ProcessHeap, blocks: Iterable[Block], like: Optional[Block]) -> Iterator[Sequence[Value]]:
    """Yield the cells of _LEAK. With ``like``, only for blocks of its size that the same stack allocated."""
    wanted = _origin(heap, like) if like is not None else None
    for block in blocks:
        if wanted is None or (block.size == wanted.size and _origin(heap, block) == wanted):
            record = heap.records.of_block(block.address)
            at = record.bufctl if record is not None else block.address
            kept = (block.kept_count, block.kept_bytes)
            yield at, block.size, STATES[block.state], arena_name(block.arena), *kept, block.address


class _Origin(NamedTuple):
    """The properties that the blocks of one group share."""

    size: int
    single: bool
    allocator: str
    frames: Sequence[object]


def _origin(heap: ProcessHeap, block: Block) -> _Origin:
    record = heap.records.of_block(block.address)
    return _Origin(block.size, block.single, block.allocator, record.stack.frames if record is not None else ())


def _bufctls(target: Target, query: Query) -> Rows:
    entries = require_records(target).all()
    return ((entry.bufctl,) for entry in entries) if query.brief else (_entry(entry) for entry in entries)


def _log(target: Target, query: Query) -> Rows:
    records = require_records(target, log=True)
    entries: Iterable[Transaction] = records.log()
    if query.within is not None:
        last = records.last_of(query.within)
        entries = [last, *last.history()] if last is not None else []
    return ((entry.at,) for entry in entries) if query.brief else (_entry(entry) for entry in entries)


def _entry(entry: Entry) -> Sequence[Value]:
    thread = entry.thread.tid
    return address_of(entry), entry.address, event(entry), entry.requested, entry.time, thread


def _leaked(*states: int) -> Callable[[Target, Query], Rows]:
    def rows(target: Target, query: Query) -> Rows:
        heap = find_heap(target)
        if query.within is None:
            return _blocks(heap, [EVERYWHERE], states, query)
        block = heap.block_at(query.within)
        if block is None or block.state not in (DIRECT, INDIRECT):
            raise UsageError(f"{query.within:#x} is in no leaked block", ASK_WHATIS)
        alike = (
            other.address
            for other in heap.blocks(*states)
            if (other.size, other.single, other.allocator) == (block.size, block.single, block.allocator)
        )
        return zip(alike) if query.is_plain else _rows_of(heap, alike, query)

    return rows


def _block_of(heap: ProcessHeap, query: Query, walker: str) -> Block:
    """Return the block in use that the walk is about."""
    if query.within is None:
        raise UsageError(f"walk {walker} needs an address", f"walk {walker} 0x...")
    block = heap.block_at(query.within)
    if block is None or block.state == FREE:
        raise UsageError(f"{query.within:#x} is in no block in use", ASK_WHATIS)
    return block


def _dominated(target: Target, query: Query) -> Rows:
    heap = find_heap(target)
    block = _block_of(heap, query, "dominated")
    found = find_owners(target).addresses(("below", block.address))
    return zip(found) if query.brief and query.sizes is None else _rows_of(heap, found, query)


def _referrers(target: Target, query: Query) -> Rows:
    heap = find_heap(target)
    block = _block_of(heap, query, "referrers")
    for at in heap.index.referrers(block, _MOST_REFERRERS):
        if block.address <= at < block.end:
            continue
        holder = heap.block_at(at)
        offset = (heap.words.at(at) or 0) - block.address
        inside = (holder.address, STATES[holder.state]) if holder is not None else (None, None)
        yield (at, offset, *inside)


def _path(target: Target, query: Query) -> Rows:
    heap = find_heap(target)
    block = _block_of(heap, query, "path")
    path = path_to(named_roots(heap.target), block.address, most=0)
    return _rows_of(heap, path.addresses if path is not None else [], query)


def _arenas(target: Target, _query: Query) -> Rows:
    """Return the arenas whose own structures are known."""
    return [row for one in find_heap(target).heaps for row in one.arena_rows()]


def _threads(target: Target, query: Query) -> Rows:
    """Return the threads. JSON alone has those whose thread pointer is not in the dump: they have no address.

    Tools that do not know it write 0 (valgrind).
    """
    pointer = target.arch.thread_pointer
    rows = [(thread.registers.get(pointer) or None, thread.tid, thread.name) for thread in target.threads()]
    return [row for row in rows if row[0] is not None or not query.brief]


def _mappings(target: Target, _query: Query) -> Rows:
    return [(m.start, m.end, m.flags, m.path, m.offset if m.path is not None else None) for m in target.mappings()]


_KEPT = "required: the block that keeps them alive"
_POINTED = "required: the block that they point into"
_LED = "required: the block that the path leads to"
_SAME_BUFFER = "only what happened to the buffer that holds ADDR, or held it"
_SAME_ARENA = "only those in the arena that ADDR is, or points into"
_SAME_SIZE = "only those of the size of the leaked block that ADDR points into"
_SAME_ORIGIN = "only those of the size and stack of ADDR, a bufctl or a leaked block"

WALKERS: Mapping[str, Walker[Target, Query]] = {
    "leak": Walker(
        "direct leaks: their bufctls, where there are any",
        _LEAK,
        _recorded_leaks,
        _SAME_ORIGIN,
        True,
        True,
        of_leaks=True,
    ),
    "leakbuf": Walker(
        "every leaked buffer, direct and indirect",
        _BLOCK,
        _leaked(DIRECT, INDIRECT),
        _SAME_SIZE,
        True,
        True,
        of_leaks=True,
    ),
    "buf": Walker(
        "allocated buffers, leaked ones too", _BLOCK, _in_arena(LIVE, DIRECT, INDIRECT), _SAME_ARENA, True, True, True
    ),
    "freebuf": Walker(
        "free buffers, in a tcache, fastbin, bin or slab", _BLOCK, _in_arena(FREE), _SAME_ARENA, True, True
    ),
    "dominated": Walker(
        "the buffer, and what it alone keeps alive: see `retained`", _BLOCK, _dominated, _KEPT, True, True
    ),
    "referrers": Walker("words of memory that point into a buffer", _REFERRER, _referrers, _POINTED, of_heap=True),
    "path": Walker("the buffers from a root to a buffer: see `pathto`", _BLOCK, _path, _LED, True, True),
    "bufctl": Walker("allocation records of live buffers, by buffer", _ENTRY, _bufctls),
    "log": Walker("the transaction log: what was allocated and freed, newest first", _ENTRY, _log, _SAME_BUFFER),
    "arena": Walker("malloc's arenas: struct malloc_state, and jemalloc's arena_t", _ARENA, _arenas, of_heap=True),
    "thread": Walker("threads: the thread pointer (struct pthread on x86)", _THREAD, _threads),
    "mapping": Walker("mappings: where each begins", _MAPPING, _mappings),
}
