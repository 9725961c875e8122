"""What ``walk`` walks. A new walker is one entry in WALKERS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from dmods import heap as heaps
from dmods import records as allocation_records
from dmods.blocks import EVERYWHERE, STATES, addresses, arena_name, arena_of, runs_of
from dmods.errors import ASK_WHATIS, UsageError
from dmods.heap import DIRECT, FREE, INDIRECT, LIVE, Block, ProcessHeap
from dmods.jemalloc import stats
from dmods.jemalloc.heap import first_arena
from dmods.records import Entry, Record, Transaction
from dmods.recordviews import address_of, event
from dmods.report import Column, Value
from dmods.target import Target

Rows = Iterable[Sequence[Value]]


@dataclass(frozen=True)
class Walker:
    """``columns`` begin with the address; ``rows(target, within, brief)`` gives them in the same order.

    ``within`` narrows the walk to what an address belongs to, as ``narrows`` says ("": this walker cannot). With
    ``brief`` only the address is wanted: rows may be that short.
    """

    summary: str
    columns: Sequence[Column]
    rows: Callable[[Target, Optional[int], bool], Rows]
    narrows: str = ""
    of_heap: bool = False


_BLOCK = (
    Column("address", "address"),
    Column("size", "bytes"),
    Column("state"),
    Column("arena"),
    Column("kept_count", "count"),
    Column("kept_bytes", "bytes"),
)
_LEAK = (*_BLOCK, Column("buffer", "address"))
_ENTRY = (
    Column("address", "address"),
    Column("buffer", "address"),
    Column("event"),
    Column("requested", "bytes"),
    Column("timestamp", "time"),
    Column("thread", "count"),
)
_ARENA = (
    Column("address", "address"),
    Column("arena"),
    Column("top", "address"),
    Column("system_bytes", "bytes"),
    Column("attached_threads", "count"),
)
_THREAD = (Column("address", "address"), Column("tid", "count"), Column("name"))
_MAPPING = (
    Column("address", "address"),
    Column("end", "address"),
    Column("flags"),
    Column("path"),
    Column("offset", "address"),
)


def _blocks(heap: ProcessHeap, ranges: Sequence[tuple[int, int]], states: Sequence[int], brief: bool) -> Rows:
    if brief:
        return zip(addresses(heap, ranges, *states))
    if states != (FREE,):
        heap.leaks()  # or the leaked ones would be called live
    return _described(heap, addresses(heap, ranges, *states))


def _described(heap: ProcessHeap, found: Iterable[int]) -> Iterator[Sequence[Value]]:
    for address in found:
        block = heap.block_at(address)
        if block is not None:
            kept = (block.kept_count, block.kept_bytes) if block.state == DIRECT else (None, None)
            yield address, block.size, STATES[block.state], arena_name(block.arena), *kept


def _in_arena(*states: int) -> Callable[[Target, Optional[int], bool], Rows]:
    def rows(target: Target, within: Optional[int], brief: bool) -> Rows:
        heap = heaps.of(target)
        if within is None:
            return _blocks(heap, [EVERYWHERE], states, brief)
        number = arena_of(heap, within)
        if number is None:
            raise UsageError(f"{within:#x} belongs to no arena", "`walk arena` lists them")
        return _blocks(heap, runs_of(heap, number), states, brief)

    return rows


def _recorded_leaks(target: Target, within: Optional[int], brief: bool) -> Rows:
    """The bufctls of direct leaks; the blocks themselves where there are no records."""
    heap = heaps.of(target)
    heap.leaks()
    if not heap.records:
        plain = _leaked(DIRECT)(target, within, brief)
        return plain if brief else ((*row, row[0]) for row in plain)
    if within is None:
        return _with_bufctls(heap, heap.blocks(DIRECT), None)
    entry = heap.records.at(within)
    block = heap.block_at(entry.address if isinstance(entry, Record) else within)
    if block is None or block.state not in (DIRECT, INDIRECT):
        raise UsageError(f"{within:#x} is in no leaked block, nor the bufctl of one", ASK_WHATIS)
    return _with_bufctls(heap, heap.blocks(DIRECT), block)


def _with_bufctls(heap: ProcessHeap, blocks: Iterable[Block], alike: Optional[Block]) -> Iterator[Sequence[Value]]:
    """With ``alike`` those of its size that were allocated by the same stack."""
    wanted = _kin(heap, alike) if alike is not None else None
    for block in blocks:
        if wanted is None or (block.size == wanted[0] and _kin(heap, block) == wanted):
            record = heap.records.of_block(block.address)
            at = record.bufctl if record is not None else block.address
            kept = (block.kept_count, block.kept_bytes)
            yield at, block.size, STATES[block.state], arena_name(block.arena), *kept, block.address


def _kin(heap: ProcessHeap, block: Block) -> tuple[int, bool, str, Sequence[object]]:
    record = heap.records.of_block(block.address)
    return block.size, block.single, block.allocator, record.stack.frames if record is not None else ()


def _bufctls(target: Target, _within: Optional[int], brief: bool) -> Rows:
    entries = allocation_records.require(target).all()
    return ((entry.bufctl,) for entry in entries) if brief else (_entry(entry) for entry in entries)


def _log(target: Target, within: Optional[int], brief: bool) -> Rows:
    records = allocation_records.require(target, log=True)
    entries: Iterable[Transaction] = records.log()
    if within is not None:
        last = records.last_of(within)
        entries = [last, *last.history()] if last is not None else []
    return ((entry.at,) for entry in entries) if brief else (_entry(entry) for entry in entries)


def _entry(entry: Entry) -> Sequence[Value]:
    thread = entry.thread.tid
    return address_of(entry), entry.address, event(entry), entry.requested, entry.time, thread


def _leaked(*states: int) -> Callable[[Target, Optional[int], bool], Rows]:
    def rows(target: Target, within: Optional[int], brief: bool) -> Rows:
        heap = heaps.of(target)
        heap.leaks()
        if within is None:
            return _blocks(heap, [EVERYWHERE], states, brief)
        block = heap.block_at(within)
        if block is None or block.state not in (DIRECT, INDIRECT):
            raise UsageError(f"{within:#x} is in no leaked block", ASK_WHATIS)
        alike = (
            other.address
            for other in heap.blocks(*states)
            if (other.size, other.single, other.allocator) == (block.size, block.single, block.allocator)
        )
        return zip(alike) if brief else _described(heap, alike)

    return rows


def _arenas(target: Target, _within: Optional[int], _brief: bool) -> Rows:
    """glibc's, then those of jemalloc whose ``arena_t`` is known."""
    heap = heaps.of(target)
    rows: list[Sequence[Value]] = [
        (arena.address, arena_name(number), arena.top, arena.system_mem, arena.attached)
        for number, arena in enumerate(heap.arenas)
    ]
    for order, (one, caches) in enumerate(zip(heap.jemallocs, heap.jemalloc_caches)):
        for usage in stats.usages(heap.words, one, caches):
            if usage.address is not None:
                name = arena_name(first_arena(order) + usage.arena)
                rows.append((usage.address, name, None, usage.mapped, usage.tcaches))
    return rows


def _threads(target: Target, _within: Optional[int], brief: bool) -> Rows:
    """Threads whose thread pointer is not in the dump are in the JSON alone: they have no address to list."""
    pointer = target.arch.thread_pointer
    rows = [(thread.registers.get(pointer), thread.tid, thread.name) for thread in target.threads()]
    return [row for row in rows if row[0] is not None or not brief]


def _mappings(target: Target, _within: Optional[int], _brief: bool) -> Rows:
    return [(m.start, m.end, m.flags, m.path, m.offset if m.path is not None else None) for m in target.mappings()]


_SAME_ADDRESS = "only what happened to the buffer that ADDR is, or was, in"
_SAME_ARENA = "only those in the arena that ADDR is, or points into"
_ALIKE = "only those like the leaked block that ADDR points into: of its size"
_ALIKE_RECORDED = "only those like that of ADDR, a bufctl or a leaked block: of its size and stack"

WALKERS: Mapping[str, Walker] = {
    "leak": Walker("direct leaks: their bufctls, where there are any", _LEAK, _recorded_leaks, _ALIKE_RECORDED, True),
    "leakbuf": Walker("every leaked buffer, direct and indirect", _BLOCK, _leaked(DIRECT, INDIRECT), _ALIKE, True),
    "buf": Walker("allocated buffers, leaked ones too", _BLOCK, _in_arena(LIVE, DIRECT, INDIRECT), _SAME_ARENA, True),
    "freebuf": Walker("free buffers, in a tcache, fastbin, bin or slab", _BLOCK, _in_arena(FREE), _SAME_ARENA, True),
    "bufctl": Walker("allocation records of live buffers, by buffer", _ENTRY, _bufctls),
    "log": Walker("the transaction log: what was allocated and freed, newest first", _ENTRY, _log, _SAME_ADDRESS),
    "arena": Walker("malloc's arenas: struct malloc_state, and jemalloc's arena_t", _ARENA, _arenas, of_heap=True),
    "thread": Walker("threads: the thread pointer (struct pthread on x86)", _THREAD, _threads),
    "mapping": Walker("mappings: where each begins", _MAPPING, _mappings),
}
