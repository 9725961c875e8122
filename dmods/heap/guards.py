"""The auditor's guards, verified in the core: which blocks were written where they should not have been.

With guards the auditor writes a redzone behind the requested end of every block, and fills a block when it is freed. In
the process it compares the redzone only when the block is freed. This module does so for all blocks of a core, as mdb's
``::umem_verify`` does. It also compares the filling of freed blocks that no other block has replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Optional

from dmods.base.cached import cached
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.heap.block import FREE, OWN, Block
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.records.model import Entry, Guards, Recording, record, transaction
from dmods.records.sources import allocation_records
from dmods.target import Target

if TYPE_CHECKING:
    from dmods._engine import Image, LogRow

AFTER = "after"  # behind the requested end of a live block
INSIDE = "inside"  # in a freed block
_BATCH = 65536
_PIECE = 4096  # bytes that are compared at once
_MOST_CHANGES = 100  # of one block
_MOST_FINDINGS = 1000  # live blocks, and as many freed ones
_MOST_FREED = 1 << 20  # freed blocks that are compared
_MOST_FREED_BYTES = 4 << 30  # of them all: a dump may name the same memory again and again
_MOST_OF_ONE = 64 << 20  # bytes of one freed block that are compared


class Change(NamedTuple):
    """Adjacent bytes that are not what the auditor wrote there. ``offset`` counts from the start of the block."""

    offset: int
    expected: bytes
    found: bytes


@dataclass(frozen=True)
class Overwritten:
    """A block that was written where it should not have been.

    ``side`` AFTER is a write behind a live block. ``entry`` is its Record, with the owner's stack, thread and time.
    ``side`` INSIDE is a write into a freed block. ``entry`` is the Transaction of the free. Its ``stack`` is that of
    the free, and its ``alloc_stack`` is that of the owner, where the log has it.
    ``usable`` is what malloc_usable_size says without guards, or None where dmods does not know the allocator.
    ``changes`` are the first 100 runs of bytes that were written. ``above`` is set where the block behind was probably
    written before its start: then this block is not at fault.
    """

    entry: Entry
    side: str
    usable: Optional[int]
    changes: Sequence[Change]
    above: Optional[int] = None  # the block behind it, before whose start these bytes were written

    @property
    def address(self) -> int:
        """Return the address that malloc returned."""
        return self.entry.address

    @property
    def requested(self) -> int:
        """Return the number of bytes that the program asked for."""
        return self.entry.requested


@dataclass
class Verification:
    """The result for all guarded blocks.

    ``live`` and ``freed`` count the blocks that were compared, and ``damaged`` those of them that were written.
    ``unreadable`` counts the blocks that are not in the dump, and ``skipped`` those beyond the limits of this module.
    If one of these two is not 0, a verification without ``blocks`` does not mean that the heap is clean.
    ``blocks`` has the first 1000 damaged live blocks by address, then the first 1000 freed ones, the newest first.
    """

    live: int = 0
    freed: int = 0
    unreadable: int = 0
    skipped: int = 0
    damaged: int = 0
    blocks: list[Overwritten] = field(default_factory=list)


@cached
def verify(target: Target) -> Optional[Verification]:
    """Return what the guards of all blocks say, or None where the program did not run with guards.

    The redzones of a million live blocks take a fraction of a second. Live blocks are verified over every allocator.
    Freed blocks are verified only where dmods can walk the heap: an allocator keeps links of its own in free memory.
    """
    guarded = [(one, one.guards) for one in allocation_records(target).recordings if one.guards is not None]
    if not guarded:
        return None
    found = Verification()
    for recording, guards in guarded:
        _verify_live(target, recording, guards, found)
    for recording, guards in guarded:
        _verify_freed(target, recording, guards, found)
    return found


def _usable(target: Target, address: int) -> Optional[int]:
    """Return malloc_usable_size of the block that begins at an address.

    None: the allocator is not known, or only the records know its blocks, with what was asked for.
    """
    heap = find_heap(target)
    block = heap.index.block_at(address)
    if block is None or block.address != address:
        return None
    recorded = any(one.arena == block.arena and not one.is_checked for one in heap.heaps)
    return None if recorded else block.size


def changes(expected: bytes, data: bytes, start: int) -> list[Change]:
    """Return the first 100 runs of bytes that differ. ``start`` is the offset of the first byte in the block."""
    found: list[Change] = []
    for low, high in _differing(expected, data):
        change = Change(start + low, expected[low:high], data[low:high])
        if found and found[-1].offset + len(found[-1].found) == change.offset:
            before = found.pop()
            change = Change(before.offset, before.expected + change.expected, before.found + change.found)
        elif len(found) == _MOST_CHANGES:
            break
        found.append(change)
    return found


def _differing(expected: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the runs of bytes that differ. A run ends at each multiple of 4096."""
    for piece in range(0, len(data), _PIECE):
        wanted, here = expected[piece : piece + _PIECE], data[piece : piece + _PIECE]
        if wanted == here:
            continue
        differs = [a != b for a, b in zip(wanted, here)]
        at = 0
        for different, run in groupby(differs):
            length = sum(1 for _ in run)
            if different:
                yield piece + at, piece + at + length
            at += length


# -- live blocks ------------------------------------------------------------------------------------------------------


def _verify_live(target: Target, recording: Recording, guards: Guards, found: Verification) -> None:
    """Compare the redzone behind every live block."""
    image = target.image()
    expected = bytes([guards.redzone_byte]) * guards.redzone
    result = recording.rows.redzones(image, guards.redzone, guards.redzone_byte, _MOST_FINDINGS)
    compared, unreadable, damaged, rows = result
    found.live += compared
    found.unreadable += unreadable
    found.damaged += damaged
    for row in rows:
        address, requested = row.address, row.size
        different = changes(expected, _read(image, address + requested, guards.redzone), requested)
        usable = _usable(target, address)
        above = _written_from_above(target, address, requested, usable, different)
        found.blocks.append(Overwritten(record(recording, row), AFTER, usable, different, above))


def _written_from_above(
    target: Target, address: int, requested: int, usable: Optional[int], different: Sequence[Change]
) -> Optional[int]:
    """Return the block behind, if the change begins exactly at its header and no byte before that is changed.

    The last word of a chunk's usable memory lies in the header of the next chunk (glibc).
    """
    word = target.arch.word
    if usable is None or not different or different[0].offset == requested or different[0].offset != usable - word:
        return None
    behind = address + usable + word
    heap = find_heap(target)
    block = heap.index.block_at(behind)
    one = heap.heap_of(block) if block is not None and block.address == behind else None
    return behind if one is not None and one.has_headers else None


def _read(image: Image, address: int, size: int) -> bytes:
    """Return up to ``size`` bytes, none beyond the end of the address space."""
    return image.read(address, size) if address + size < 1 << 64 else b""


# -- freed blocks -----------------------------------------------------------------------------------------------------


def _verify_freed(target: Target, recording: Recording, guards: Guards, found: Verification) -> None:
    """Compare the filling of the freed blocks that no other block has replaced."""
    image = target.image()
    word = guards.freed_word.to_bytes(4, "little")
    own_sizes: Optional[set[int]] = None
    findings, budget = 0, _MOST_FREED_BYTES
    for row in _freed(recording, guards, found):
        address, requested = row.address, row.size
        size = min(requested, _MOST_OF_ONE)
        if budget < size:
            found.skipped += 1
            continue
        budget -= size
        heap = find_heap(target)
        own_sizes = own_sizes if own_sizes is not None else {block.size for block in heap.index.blocks(OWN)}
        links = _links(heap, address, requested + guards.redzone, own_sizes)
        if links is None:
            continue
        data = _read(image, address, size)
        if len(data) < size:
            found.unreadable += 1
            continue
        if findings == _MOST_FINDINGS:
            found.skipped += 1
            continue
        found.freed += 1
        expected = (word * (size // 4 + 1))[links:size]
        if data[links:] == expected:
            continue
        different = _without_purged(changes(expected, data[links:], links), address)
        if not different:
            continue
        found.damaged += 1
        findings += 1
        found.blocks.append(Overwritten(transaction(recording, row), INSIDE, _usable(target, address), different))


def _freed(recording: Recording, guards: Guards, found: Verification) -> Iterator[LogRow]:
    """Yield the last free of each block that no other block has replaced, the newest first."""
    rows, seen, before = recording.rows, set[int](), 1 << 64
    while batch := rows.log(before, _BATCH, True):
        for row in batch:
            address = row.address
            if address in seen:
                continue
            if len(seen) == _MOST_FREED:
                found.skipped += 1
                continue
            seen.add(address)
            if guards.was_filled(address):
                yield row
        before = batch[-1].sequence


def _links(heap: ProcessHeap, address: int, size: int, own_sizes: set[int]) -> Optional[int]:
    """Return how many bytes at the start of a freed block hold the allocator's own links. None: it cannot be verified.

    A block can be verified while it is a free block by itself. Where it was merged with others, or its memory was split
    again, the allocator's headers lie anywhere in it. The allocator's own blocks (tcaches) have no record. So a block
    of their size may have been one of them meanwhile.
    """
    block: Optional[Block] = heap.index.block_at(address)
    if block is None or block.state != FREE or block.address != address or block.size < size:
        return None
    one = heap.heap_of(block)
    if one is None or (one.has_headers and block.size in own_sizes):
        return None
    return one.links_in_free(block)


def _without_purged(different: list[Change], address: int) -> list[Change]:
    """Return the changes without whole pages of zeros, which an allocator has given back to the system."""
    page = 4096
    found = []
    for change in different:
        start, end = address + change.offset, address + change.offset + len(change.found)
        low, high = -(-start // page) * page, end // page * page
        if low < high and not any(change.found[low - start : high - start]):
            cuts = [(0, low - start), (high - start, len(change.found))]
        else:
            cuts = [(0, len(change.found))]
        found += [
            Change(change.offset + a, change.expected[a:b], change.found[a:b]) for a, b in cuts if change.found[a:b]
        ]
    return found
