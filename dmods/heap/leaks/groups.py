"""Groups of direct leaks: by size, and by stack where there are allocation records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from dmods import _engine
from dmods.base.dataclass import dataclass, replace
from dmods.heap.block import DIRECT, Block, allocator_name
from dmods.heap.heap import ProcessHeap
from dmods.records.callers import Caller, Callers
from dmods.records.model import Record, Stack, record

NO_STACK = Stack((), False)
_BATCH = 1 << 18  # leaks that are added up at once


@dataclass(frozen=True)
class LeakGroup:
    """Direct leaks of one size and one stack.

    ``first`` is the address of the oldest one, and ``record`` is its record. Without records, ``first`` is the lowest
    address and ``record`` is None. ``size`` and ``kept_bytes`` are usable bytes. ``kind`` is the type or the shape,
    where leaks were told apart by that. ``guessed`` of them have the type of live objects that look alike. ``sampled``
    of them have the type that others of their group have.
    """

    size: int
    allocator: str
    single: bool
    count: int
    first: int
    kept_count: int
    kept_bytes: int
    record: Optional[Record]
    stack: Stack
    caller: Caller
    kind: str = ""
    guessed: int = 0
    sampled: int = 0

    @property
    def cache(self) -> str:
        """Return the name that libumem would show for the cache: "malloc-56"."""
        return f"{self.allocator.split()[-1]}-{self.size}"

    @property
    def bytes(self) -> int:
        """Return the usable bytes of the leaked blocks, without what they keep alive."""
        return self.count * self.size

    @property
    def lost(self) -> int:
        """Return the bytes that leaked, plus the bytes that they keep alive."""
        return self.bytes + self.kept_bytes

    @property
    def order(self) -> tuple[int, str, int, int, int]:
        """Return the sort key: most bytes lost first, then by caller, as mdb sorts."""
        bufctl = self.record.bufctl if self.record is not None else self.first
        return -self.lost, self.caller.text, self.caller.pc, self.size, bufctl


def group_leaks(heap: ProcessHeap, callers: Callers) -> list[LeakGroup]:
    """Return the groups of all direct leaks, sorted. Without records, `typed_rows.leaks_by_type` tells more."""
    rows = [recording.rows for recording in heap.records.recordings]
    found: dict[object, LeakGroup] = {}
    start = 0
    while batch := heap.marks.engine.blocks([DIRECT], start, _BATCH):
        start = batch[-1].address + 1
        for allocator, blocks in _by_allocator(batch):
            for row in _engine.group_leaks(rows, blocks):
                _add(found, _group(heap, callers, allocator, row))
    return sorted(found.values(), key=lambda group: group.order)


def group_of_block(heap: ProcessHeap, callers: Callers, block: Block) -> LeakGroup:
    """Return a group that holds only this block."""
    own = heap.records.of_block(block.address)
    stack = own.stack if own is not None else NO_STACK
    kept = (block.kept_count, block.kept_bytes)
    caller = callers.caller(stack)
    return LeakGroup(block.size, block.allocator, block.single, 1, block.address, *kept, own, stack, caller)


def group_of_kind(row: _engine.Group, nobody: Caller, kind: str, guessed: bool = False) -> LeakGroup:
    """Return the group that a row of the engine stands for. ``nobody`` is the caller of a block without a record."""
    allocator, kept = allocator_name(row.allocator), (row.kept_count, row.kept_bytes)
    group = LeakGroup(row.size, allocator, row.single, row.count, row.first, *kept, None, NO_STACK, nobody, kind)
    return replace(group, guessed=row.count) if guessed else group


def groups_through(heap: ProcessHeap, callers: Callers, found: Iterable[LeakGroup], address: int) -> list[LeakGroup]:
    """Return the groups whose stack passes through the address, or through the function that begins there."""
    return [group for group in found if callers.passes(group.stack, address)]


def _by_allocator(batch: list[_engine.Block]) -> Iterator[tuple[str, list[_engine.Block]]]:
    """Yield the blocks of each allocator that has some."""
    names = {number: allocator_name(number) for number in {row.allocator for row in batch}}
    for name in sorted(set(names.values())):
        yield name, [row for row in batch if names[row.allocator] == name] if len(set(names.values())) > 1 else batch


def _group(heap: ProcessHeap, callers: Callers, allocator: str, row: _engine.LeakGroup) -> LeakGroup:
    own = row.record
    known = record(heap.records.recordings[row.recorder], own) if row.recorder is not None and own is not None else None
    stack = known.stack if known is not None else NO_STACK
    caller = callers.caller(stack)
    kept = (row.kept_count, row.kept_bytes)
    return LeakGroup(row.size, allocator, row.single, row.count, row.first, *kept, known, stack, caller)


def _add(found: dict[object, LeakGroup], group: LeakGroup) -> None:
    """Add a group to those that earlier batches found."""
    key = (group.size, group.allocator, group.single, group.record is None, tuple(group.stack.frames))
    before = found.get(key)
    if before is not None:
        older, younger = sorted((before, group), key=lambda g: (g.record.time if g.record is not None else 0, g.first))
        group = replace(
            older,
            count=older.count + younger.count,
            kept_count=older.kept_count + younger.kept_count,
            kept_bytes=older.kept_bytes + younger.kept_bytes,
        )
    found[key] = group
