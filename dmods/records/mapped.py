"""Who mapped what: the auditor's records of mmap, mremap, brk and shmat (`dmods run --audit maps`).

The auditor sees the calls that the program and its libraries make. libc and ld.so map memory without them: malloc's own
heaps and large blocks, stacks of threads, mapped libraries. So a range may also have gone without a record. What the
process no longer has mapped is left out here.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.base.cached import cached
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.errors import UserError
from dmods.records import audit_format
from dmods.records.audit_format import (
    MAPPING,
    MAPPING_BRK,
    MAPPING_MMAP,
    MAPPING_MREMAP,
    MAPPING_SHMAT,
    NODE_EXACT_BIT,
    NODE_TRUNCATED_BIT,
    Root,
    read_mapping,
)
from dmods.records.auditor import auditor_root, clock_of, latest_moment, threads_of
from dmods.records.model import Record, Recording, Records, Stack, record
from dmods.records.sources import allocation_records
from dmods.target import AddressRange, Target

NAME = "the auditor's records of mappings"
HOW_TO_RECORD = "next time start the program with `dmods run --audit audit,maps -- PROG ARGS...`"
_CALLS = {MAPPING_MMAP: "mmap", MAPPING_MREMAP: "mremap", MAPPING_BRK: "brk", MAPPING_SHMAT: "shmat"}
_MALLOC = "malloc"
_MOST = 1 << 18  # entries that are read: the auditor keeps half as many
_MOST_ENTRY = 1 << 10  # bytes
_MOST_PARTS = 1 << 19  # of entries: honest ones do not overlap, and a process has 65530 mappings
_MOST_FRAMES = 1 << 12
_MOST_NODES = 1 << 21  # frames of all stacks: damaged tables could hold any number
_MOST_BLOCKS = 64  # of a mapping, where a block of malloc may fill most of it
_NODE = struct.Struct("<QII")
_FLAGS = 1 << NODE_TRUNCATED_BIT | 1 << NODE_EXACT_BIT
_ADDRESS = (1 << NODE_TRUNCATED_BIT) - 1


class Maker(NamedTuple):
    """A call that mapped ``bytes`` of a mapping, and its stack. ``call`` is "malloc" for a large block of malloc."""

    call: str
    bytes: int
    record: Record

    @property
    def stack(self) -> Stack:
        """Return the stack of the call."""
        return self.record.stack


class MapRecords(NamedTuple):
    """The recording, and the calls by the start of each range."""

    recording: Recording
    calls: dict[int, str]


@cached
def recorded_maps(target: Target) -> Optional[MapRecords]:
    """Return who mapped what, or None where that was not recorded."""
    root = auditor_root(target)
    if root is None or not root.maps.entries or not MAPPING.size <= root.maps.entry_size <= _MOST_ENTRY:
        return None
    words = Words(target.image(), 8)
    entries = list(_entries(words, root))
    mapped = Ranges((piece.start, piece.end) for piece in target.mappings())
    stacks, numbers = _stacks(words, root, {entry.stack for entry, _at in entries})
    clock = clock_of(root) or (0, 0, 1, 1)
    rows: list[tuple[int, int, int, int, int, int]] = []
    calls: dict[int, str] = {}
    gone = 0
    for entry, at in entries:
        if len(rows) > _MOST_PARTS:
            break
        parts = mapped.within(entry.start, entry.end)
        gone += entry.end - entry.start - sum(end - start for start, end in parts)
        for start, end in parts:
            rows.append((start, at, end - start, _time(clock, entry.time), numbers.get(entry.stack, 0), entry.thread))
            calls[start] = _CALLS.get(entry.kind, "?")
    rows.sort()
    latest = latest_moment(root)
    recording = Recording(
        name=NAME,
        load=lambda: _engine.Records(rows, [], stacks, 0),
        threads=list(threads_of(words, root.threads)),
        epoch=latest.realtime - latest.monotonic if latest.monotonic else None,
        clock=clock,
        notes=list(_notes(root, gone, len(rows) > _MOST_PARTS)),
    )
    return MapRecords(recording, calls)


def require_maps(target: Target) -> Records:
    """Return the records of mappings. Raises UserError where nobody recorded mappings."""
    found = recorded_maps(target)
    if found is None:
        raise UserError("nobody recorded who mapped what", HOW_TO_RECORD)
    return Records([found.recording])


def makers(target: Target, mapping: AddressRange) -> list[Maker]:
    """Return the calls that made a mapping, the largest part first. [] where none was recorded.

    The kernel joins neighbours with equal rights, so one mapping may have several makers. Of a mapping without one, a
    block of malloc that fills at least half of it is the reason: malloc mapped it for that block.
    """
    found = recorded_maps(target)
    if found is None:
        return []
    starts = _starts(target)
    made = []
    for index in range(max(0, bisect_left(starts, mapping.start) - 1), len(starts)):
        if starts[index] >= mapping.end:
            break
        row = found.recording.rows.of_block(starts[index])
        if row is not None:
            size = min(mapping.end, row.address + row.size) - max(mapping.start, row.address)
            if size > 0:
                made.append(Maker(found.calls[row.address], size, record(found.recording, row)))
    return sorted(made, key=lambda maker: -maker.bytes) or list(_of_malloc(target, mapping))


def recorded_parts(target: Target, start: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of a range that one recorded call each has mapped, by address. [] where none was recorded."""
    found = recorded_maps(target)
    starts = _starts(target)
    parts = []
    for index in range(max(0, bisect_left(starts, start) - 1), len(starts)):
        if found is None or starts[index] >= end:
            break
        row = found.recording.rows.of_block(starts[index])
        if row is not None and row.address + row.size > start:
            parts.append((max(start, row.address), min(end, row.address + row.size)))
    return parts


@cached
def _starts(target: Target) -> Sequence[int]:
    found = recorded_maps(target)
    return sorted(found.calls) if found is not None else []


def _of_malloc(target: Target, mapping: AddressRange) -> Iterator[Maker]:
    if mapping.path is not None:
        return
    for recording in allocation_records(target).recordings:
        rows = recording.rows.records(mapping.start, _MOST_BLOCKS)
        inside = [row for row in rows if row.address + row.size <= mapping.end and 2 * row.size >= mapping.size]
        yield from (Maker(_MALLOC, row.size, record(recording, row)) for row in inside)


def _time(clock: tuple[int, int, int, int], ticks: int) -> int:
    start, shift, numerator, denominator = clock
    return min(start + (ticks << shift) * numerator // denominator, (1 << 64) - 1)


def _entries(words: Words, root: Root) -> Iterator[tuple[audit_format.Mapping, int]]:
    """Yield the entries that are present and make sense, with their addresses."""
    size, count = root.maps.entry_size, min(root.maps.count, _MOST)
    data = words.image.read(root.maps.entries, size * count)
    for offset in range(0, len(data) - MAPPING.size + 1, size):
        entry = read_mapping(data, offset)
        if 0 < entry.start < entry.end:
            yield entry, root.maps.entries + offset


def _stacks(words: Words, root: Root, wanted: set[int]) -> tuple[list[list[int]], dict[int, int]]:
    """Return the stacks, innermost frame first, and the number of each from 1 on, by the auditor's number."""
    table, most = root.stacks, min(root.options.frames, _MOST_FRAMES)
    stacks: list[list[int]] = []
    numbers: dict[int, int] = {}
    if table.entry_size < _NODE.size or table.chunk_shift > 32:
        return stacks, numbers
    left = _MOST_NODES
    for first in sorted(wanted):
        frames: list[int] = []
        node = first
        while 0 < node < table.count and node >> table.chunk_shift < table.chunk_count and len(frames) < most:
            chunk = words.at(table.chunks + 8 * (node >> table.chunk_shift))
            at = (chunk or 0) + (node & ((1 << table.chunk_shift) - 1)) * table.entry_size
            data = words.image.read(at, _NODE.size) if chunk else b""
            if len(data) < _NODE.size:
                break
            pc, parent, _hash = _NODE.unpack(data)
            frames.append(pc & (_ADDRESS | _FLAGS))
            node = parent if parent < node else 0
        left -= len(frames)
        if left < 0:
            break
        if frames:
            stacks.append(frames)
            numbers[first] = len(stacks)
    return stacks, numbers


def _notes(root: Root, gone: int, cut: bool) -> Iterator[str]:
    yield "memory that libc maps itself (malloc's, stacks of threads, libraries) has no record of who mapped it"
    if cut:
        yield "the records of mappings overlap each other: they are damaged, and most of them are left out"
    if root.lost_maps:
        yield f"{root.lost_maps} mappings were not recorded: the table was full, or a signal handler made them"
    if gone:
        yield f"{gone} bytes that were mapped are gone without a call that the auditor saw: they are left out"
