"""What ``walk`` walks. A new walker is one entry in WALKERS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from dmods import heap as heaps
from dmods.blocks import EVERYWHERE, STATES, addresses, arena_name, arena_of, runs_of
from dmods.errors import UsageError
from dmods.heap import DIRECT, FREE, INDIRECT, LIVE, ProcessHeap
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


def _leaked(*states: int) -> Callable[[Target, Optional[int], bool], Rows]:
    def rows(target: Target, within: Optional[int], brief: bool) -> Rows:
        heap = heaps.of(target)
        heap.leaks()
        if within is None:
            return _blocks(heap, [EVERYWHERE], states, brief)
        block = heap.block_at(within)
        if block is None or block.state not in (DIRECT, INDIRECT):
            raise UsageError(f"{within:#x} is in no leaked block", "`whatis` says what it is")
        alike = (
            other.address
            for other in heap.blocks(*states)
            if (other.size, other.single, other.allocator) == (block.size, block.single, block.allocator)
        )
        return zip(alike) if brief else _described(heap, alike)

    return rows


def _arenas(target: Target, _within: Optional[int], _brief: bool) -> Rows:
    heap = heaps.of(target)
    return [
        (arena.address, arena_name(number), arena.top, arena.system_mem, arena.attached)
        for number, arena in enumerate(heap.arenas)
    ]


def _threads(target: Target, _within: Optional[int], brief: bool) -> Rows:
    """Threads whose thread pointer is not in the dump are in the JSON alone: they have no address to list."""
    pointer = target.arch.thread_pointer
    rows = [(thread.registers.get(pointer), thread.tid, thread.name) for thread in target.threads()]
    return [row for row in rows if row[0] is not None or not brief]


def _mappings(target: Target, _within: Optional[int], _brief: bool) -> Rows:
    return [(m.start, m.end, m.flags, m.path, m.offset if m.path is not None else None) for m in target.mappings()]


_SAME_ARENA = "only those in the arena that ADDR is, or points into"
_ALIKE = "only those like the leaked block that ADDR points into: of its size"

WALKERS: Mapping[str, Walker] = {
    "leak": Walker("direct leaks (the bufctls, where there are any)", _BLOCK, _leaked(DIRECT), _ALIKE, True),
    "leakbuf": Walker("every leaked buffer, direct and indirect", _BLOCK, _leaked(DIRECT, INDIRECT), _ALIKE, True),
    "buf": Walker("allocated buffers, leaked ones too", _BLOCK, _in_arena(LIVE, DIRECT, INDIRECT), _SAME_ARENA, True),
    "freebuf": Walker("free buffers, in a tcache, fastbin or bin", _BLOCK, _in_arena(FREE), _SAME_ARENA, True),
    "arena": Walker("malloc's arenas: struct malloc_state", _ARENA, _arenas, of_heap=True),
    "thread": Walker("threads: the thread pointer (struct pthread on x86)", _THREAD, _threads),
    "mapping": Walker("mappings: where each begins", _MAPPING, _mappings),
}
