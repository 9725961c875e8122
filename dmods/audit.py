"""The auditor's records (audit/format.h), found and read without debug information or symbols."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

from dmods import _engine
from dmods.progress import Progress
from dmods.ranges import Ranges
from dmods.records import NOBODY, RecordedThread, Recording
from dmods.target import Target
from dmods.words import Words

NAME = "the auditor"
MAGIC = b"DMODS-AUDIT-ROOT"
VERSION = 1
OFF, STARTING, RECORDING, STOPPED = range(4)
_PAGE = 4096
_GUARDS = 1  # DMODS_AUDIT_GUARDS
_TICKS = 1  # DMODS_AUDIT_CLOCK_TICKS
_BOOTSTRAP = 6  # DMODS_AUDIT_RANGE_BOOTSTRAP: the program's blocks, not the auditor's memory
_MOST_ROOTS = 64  # places with the magic that are looked at
_MOST_RANGES = 1 << 16
_MOST_THREADS = 1 << 20
_MOST_FRAMES = 1 << 12
_MOST_TLS = 1 << 20


class Table(NamedTuple):
    """struct dmods_audit_table"""

    chunks: int
    chunk_shift: int
    chunk_count: int
    entry_size: int
    used: int  # ``count``


class Ring(NamedTuple):
    """struct dmods_audit_ring"""

    entries: int
    capacity: int
    entry_size: int
    next: int


class Moment(NamedTuple):
    """struct dmods_audit_moment"""

    ticks: int
    monotonic: int
    realtime: int


class Root(NamedTuple):
    """struct dmods_audit_root, as far as it is used."""

    version: int
    size: int
    state: int
    text: str
    guards: bool  # freed blocks keep their records
    frames: int
    sample: int
    clock_kind: int
    clock_shift: int
    start: Moment
    latest: Moment
    shadow: tuple[int, list[int], list[tuple[int, int, int]]]  # as _engine.read_audit takes it
    stacks: Table
    threads: Table
    log: Ring
    contents: Ring
    ranges: tuple[int, int, int]  # entries, entry_size, count
    lost_records: int
    lost_stacks: int
    status: str
    tls: tuple[int, int]  # from the thread pointer on, size


_HEAD = struct.Struct("<16s3I4x")
_OPTIONS = struct.Struct("<256s2I3QI12x")
_CLOCK = struct.Struct("<2I10Q")
_SHADOW = struct.Struct("<Q8I24B")
_TABLE = struct.Struct("<Q3I4xQ")
_RING = struct.Struct("<2QI4xQ")
_ARRAY = struct.Struct("<QI4xQ")
_FIGURES = struct.Struct("<12Q")
_STATUS = struct.Struct("<256s16x")
_LATER = struct.Struct("<4B4xqQ")
_PARTS = (_HEAD, _OPTIONS, _CLOCK, _SHADOW, _TABLE, _TABLE, _RING, _RING, _ARRAY, _FIGURES, _STATUS, _LATER)
SIZE = sum(part.size for part in _PARTS)
_THREAD = struct.Struct("<2I2Q16s")
_RANGE = struct.Struct("<2QI")


def parse(data: bytes) -> Optional[Root]:
    """The root that the bytes begin with; None where they are none."""
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        return None
    _magic, version, size, state = _HEAD.unpack_from(data)
    data = data[:size].ljust(SIZE, b"\0")  # what an older auditor's root does not have is 0
    at = _HEAD.size
    fields: list[tuple[Any, ...]] = []
    for part in _PARTS[1:]:
        fields.append(part.unpack_from(data, at))
        at += part.size
    options, clock, shadow, stacks, threads, log, contents, ranges, figures, (status,), later = fields
    text, flags, frames, sample, *_more = options
    moments = [Moment(*clock[index : index + 3]) for index in (2, 6, 9)]
    bits = shadow[9:] + later[:4]
    return Root(
        version,
        size,
        state,
        _text(text),
        bool(flags & _GUARDS),
        frames,
        sample,
        clock[0],
        clock[1],
        moments[0],
        moments[1 + (clock[5] & 1)],
        (shadow[0], list(shadow[1:9]), [(bits[at], bits[at + 1], bits[at + 2]) for at in range(0, len(bits), 4)]),
        Table(*stacks),
        Table(*threads),
        Ring(*log),
        Ring(*contents),
        (ranges[0], ranges[1], ranges[2]),
        figures[1],
        figures[2],
        _text(status),
        (later[4], later[5]),
    )


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("utf-8", "replace")


def find(target: Target) -> Optional[Recording]:
    """The auditor's, if it was there and on. Only its root is read."""
    if target.arch.word != 8:
        return None
    found = [root for at in _places(target) if (root := parse(target.image().read(at, SIZE))) is not None]
    root = next((root for root in found if root.version == VERSION and root.state != OFF), None)
    if root is not None:
        return _recording(target, root)
    if any(root.version != VERSION for root in found):
        versions = ", ".join(str(root.version) for root in found)
        note = f"the auditor wrote tables of version {versions}, this dmods reads {VERSION}: no records"
        return Recording(NAME, _nothing, (NOBODY,), notes=[note])
    return None


def _nothing() -> _engine.Records:
    return _engine.Records([], [], [], 0)


def _places(target: Target) -> Iterator[int]:
    """Where the magic begins a page of a module's writable data."""
    low = int.from_bytes(MAGIC[:8], "little")
    parts = Ranges((m.start, m.end) for m in target.mappings() if "w" in m.flags and m.path is not None)
    for module in target.modules():
        for piece in module.ranges:
            if "w" in piece.flags:
                parts.add(piece.start, piece.end)
    found = _engine.find_pointers(target.image(), list(parts), 8, [(low, low + 1)], _MOST_ROOTS)[0]
    return (at for at in found if at % _PAGE == 0)


def _recording(target: Target, root: Root) -> Recording:
    words = Words(target.image(), 8)
    notes: list[str] = []
    if root.state == STARTING:
        notes.append("the auditor was just starting: records may be missing")
    if root.status:
        notes.append(f"the auditor says: {root.status}")
    if root.lost_records:
        notes.append(f"{root.lost_records} blocks have no record: the auditor had no memory for one")
    if root.lost_stacks:
        notes.append(f"{root.lost_stacks} records have no stack: the auditor's table of stacks was full")
    clock = _clock(root)
    if clock is None:
        notes.append("the auditor's clock makes no sense: only the order of timestamps means anything")

    def load() -> _engine.Records:
        with Progress("reading the allocation records") as bar:
            records, damage = _engine.read_audit(
                target.image(),
                root.shadow,
                root.stacks,
                root.log[:3],
                root.contents[:3],
                clock or (0, 0, 1, 1),
                min(root.frames, _MOST_FRAMES),
                root.sample,
                lambda done: bar.update(done, sum(end - start for start, end in own)),
            )
        notes.extend(_damage(*damage))
        return records

    own = list(_own(target, root, words))
    offset, size = root.tls
    pointers = [thread.registers.get(target.arch.thread_pointer, 0) for thread in target.threads()]
    plausible = abs(offset) < _MOST_TLS and size < _MOST_TLS
    return Recording(
        name=NAME,
        load=load,
        threads=list(_threads(words, root.threads)),
        own=own,
        scratch=[(p + offset, p + offset + size) for p in pointers if p and plausible],
        mean=root.sample,
        epoch=root.latest.realtime - root.latest.monotonic if root.latest.monotonic else None,
        log=root.log.capacity > 0 or root.guards,
        notes=notes,
    )


def _damage(layout: bool, stacks: bool, log: bool, tables: int, entries: int) -> Iterator[str]:
    for wrong, what in ((layout, "records"), (stacks, "stacks"), (log, "log")):
        if wrong:
            yield f"what the auditor's root says of its {what} makes no sense: they were not read"
    if tables:
        yield f"{tables} of the auditor's tables are damaged, or not (all) in the dump: records may be missing"
    if entries:
        yield f"{entries} of the auditor's records contradict themselves, and were left out"


def _clock(root: Root) -> Optional[tuple[int, int, int, int]]:
    """(ns at time 0, shift, numerator, denominator) as the engine takes them."""
    if root.clock_shift >= 64:
        return None
    if root.clock_kind != _TICKS:
        return root.start.monotonic, root.clock_shift, 1, 1
    passed, ticks = root.latest.monotonic - root.start.monotonic, root.latest.ticks - root.start.ticks
    return (root.start.monotonic, root.clock_shift, passed, ticks) if passed > 0 and ticks > 0 else None


def _threads(words: Words, table: Table) -> Iterator[RecordedThread]:
    """The threads by their numbers; [0] and those that are not (or no longer whole) there: NOBODY."""
    if table.entry_size < _THREAD.size or table.chunk_shift > 32:
        yield NOBODY
        return
    count = max(1, min(table.used, _MOST_THREADS, table.chunk_count << table.chunk_shift))
    chunk, data = -1, b""
    for index in range(count):
        if index >> table.chunk_shift != chunk:
            chunk = index >> table.chunk_shift
            here = min(count - (chunk << table.chunk_shift), 1 << table.chunk_shift)
            at = words.at(table.chunks + 8 * chunk)
            data = words.image.read(at, here * table.entry_size) if at else b""
        offset = (index - (chunk << table.chunk_shift)) * table.entry_size
        if index == 0 or offset + _THREAD.size > len(data):
            yield NOBODY
            continue
        tid, _pid, pthread, _time, name = _THREAD.unpack_from(data, offset)
        yield RecordedThread(tid, _text(name) or None, pthread or None) if tid else NOBODY


def _own(target: Target, root: Root, words: Words) -> Iterator[tuple[int, int]]:
    """The auditor's memory: ranges that no mapping holds, and such as are not writable, are none."""
    writable = Ranges((m.start, m.end) for m in target.mappings() if "w" in m.flags)
    entries, entry_size, count = root.ranges
    if entry_size < _RANGE.size:
        return
    data = words.image.read(entries, min(count, _MOST_RANGES) * entry_size)
    for offset in range(0, len(data) - _RANGE.size + 1, entry_size):
        start, end, kind = _RANGE.unpack_from(data, offset)
        if start < end and kind != _BOOTSTRAP:
            yield from writable.within(start, end)
