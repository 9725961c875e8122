"""Find and read the auditor's records (audit/format.h), without debug information or symbols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.base.cached import cached
from dmods.base.progress import Progress
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.records import audit_format
from dmods.records.audit_format import (
    CLOCK_TICKS,
    GUARDS,
    MAGIC,
    OFF,
    RANGE,
    RANGE_BOOTSTRAP,
    STARTING,
    THREAD,
    VERSION,
    Bits,
    Moment,
    Ring,
    Root,
    Table,
    read_range,
    read_root,
    read_thread,
)
from dmods.records.model import NOBODY, Guards, RecordedThread, Recording
from dmods.target import Target

NAME = "the auditor"
_LIBRARY = "libdmods_audit"
SIZE = audit_format.ROOT.size
_PAGE = 4096
_SMALLEST = 28  # bytes of a root: its magic, version, size and state
_MOST_ROOTS = 64  # places with the magic that are looked at
_MOST_RANGES = 1 << 16
_MOST_THREADS = 1 << 20
_MOST_FRAMES = 1 << 12
_MOST_TLS = 1 << 20
_MOST_REDZONE = 1 << 12
_MOST_RECORD = 256  # bytes


def parse(data: bytes) -> Optional[Root]:
    """Return the root that begins the bytes, or None where they do not begin with its magic.

    Fields that the root of an older auditor does not have are 0.
    """
    if len(data) < _SMALLEST or not data.startswith(MAGIC):
        return None
    size = read_root(data.ljust(SIZE, b"\0")).size
    return read_root(data[: max(size, _SMALLEST)].ljust(SIZE, b"\0"))


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("utf-8", "replace")


@cached
def auditor_roots(target: Target) -> Sequence[Root]:
    """Return the roots of the auditor's tables, also those of other versions. One of them is at most in use."""
    if target.arch.word != 8:
        return ()
    return [root for at in _places(target) if (root := parse(target.image().read(at, SIZE))) is not None]


def auditor_root(target: Target) -> Optional[Root]:
    """Return the root of the auditor's tables, or None where it was not there or off."""
    return next((root for root in auditor_roots(target) if root.version == VERSION and root.state != OFF), None)


def is_lost(target: Target) -> bool:
    """Return whether the auditor was in the process, and the dump lacks the root of its tables.

    Its tables then look like data of the program, and keep blocks alive. An auditor that is off has a root, too.
    """
    loaded = any(module.name.startswith(_LIBRARY) for module in target.modules())
    return loaded and target.arch.word == 8 and not auditor_roots(target)


def find_auditor(target: Target) -> Optional[Recording]:
    """Return what the auditor recorded, or None where it was not there or off. Only its root is read now."""
    root = auditor_root(target)
    if root is not None:
        return _recording(target, root)
    found = auditor_roots(target)
    if any(root.version != VERSION for root in found):
        versions = ", ".join(str(root.version) for root in found)
        note = f"the auditor wrote tables of version {versions}, this dmods reads {VERSION}: no records"
        return Recording(NAME, _nothing, (NOBODY,), notes=[note])
    return None


def _nothing() -> _engine.Records:
    return _engine.Records([], [], [], 0)


def _places(target: Target) -> Iterator[int]:
    """Yield the addresses where the magic begins a page of a module's writable data.

    Where the dump does not say which files were mapped, the library may lie in any memory that could be written.
    """
    found = _magic_in(target, _data_of_files(target))
    if not found and not target.names_files:
        writable = (m for m in target.mappings() if "w" in m.flags and m.dumped)
        found = _magic_in(target, Ranges((m.start, m.start + m.dumped) for m in writable))
    return iter(found)


def _data_of_files(target: Target) -> Ranges:
    parts = Ranges((m.start, m.end) for m in target.mappings() if "w" in m.flags and m.path is not None)
    for module in target.modules():
        for piece in module.ranges:
            if "w" in piece.flags:
                parts.add(piece.start, piece.end)
    return parts


def _magic_in(target: Target, parts: Ranges) -> list[int]:
    low = int.from_bytes(MAGIC[:8], "little")
    found = _engine.find_pointers(target.image(), list(parts), 8, [(low, low + 1)], _MOST_ROOTS)[0]
    return [at for at in found if at % _PAGE == 0 and target.image().read(at, len(MAGIC)) == MAGIC]


def _recording(target: Target, root: Root) -> Recording:
    words = Words(target.image(), 8)
    notes: list[str] = []
    figures = root.figures
    if root.state == STARTING:
        notes.append("the auditor was just starting: records may be missing")
    if _text(root.status):
        notes.append(f"the auditor says: {_text(root.status)}")
    if figures.lost_records:
        notes.append(f"{figures.lost_records} blocks have no record: the auditor had no memory for one")
    if figures.lost_stacks:
        notes.append(f"{figures.lost_stacks} records have no stack: the auditor's table of stacks was full")
    clock = clock_of(root)
    if clock is None:
        notes.append("the auditor's clock makes no sense: timestamps are right only in their order")

    def load() -> _engine.Records:
        with Progress("reading the allocation records") as bar:
            records, damage = _engine.read_audit(
                target.image(),
                _shadow(root),
                _table(root.stacks),
                _ring(root.log),
                _ring(root.contents),
                clock or (0, 0, 1, 1),
                min(options.frames, _MOST_FRAMES),
                options.sample,
                lambda done: bar.update(done, sum(end - start for start, end in own)),
            )
        notes.extend(_damage(*damage))
        return records

    options, latest = root.options, latest_moment(root)
    from dmods.records.last_words import parse_last_words

    own = list(_own(target, root, words))
    offset, size = root.tls_offset, root.tls_size
    pointers = [thread.registers.get(target.arch.thread_pointer, 0) for thread in target.threads()]
    plausible = abs(offset) < _MOST_TLS and size < _MOST_TLS
    return Recording(
        name=NAME,
        load=load,
        threads=list(threads_of(words, root.threads)),
        own=own,
        scratch=[(p + offset, p + offset + size) for p in pointers if p and plausible],
        mean=options.sample,
        epoch=latest.realtime - latest.monotonic if latest.monotonic else None,
        log=root.log.capacity > 0 or bool(options.flags & GUARDS),
        guards=_guards(root, words),
        clock=clock or (0, 0, 1, 1),
        notes=notes,
        last_words=parse_last_words(_text(root.status), root.status_address, root.status_thread, root.status_stack),
    )


def _guards(root: Root, words: Words) -> Optional[Guards]:
    """Return what the auditor wrote around blocks, or None where it wrote nothing or the numbers make no sense."""
    options = root.options
    if not options.flags & GUARDS or not 0 < options.redzone <= _MOST_REDZONE:
        return None
    return Guards(options.redzone, options.redzone_byte, options.freed, lambda at: _is_freed_record(root, words, at))


def _is_freed_record(root: Root, words: Words, address: int) -> bool:
    """Return whether the record of a block says that it was freed, and that no other block took its memory since."""
    shadow = root.shadow
    shifts = (shadow.top_shift, shadow.middle_shift, shadow.granule_shift, shadow.offset_shift)
    if max(shifts) >= 64 or not shadow.middle_count or not shadow.leaf_records or shadow.record_size > _MOST_RECORD:
        return False
    top = address >> shadow.top_shift
    middle = words.at(shadow.top + 8 * top) if top < shadow.top_count else None
    leaf = words.at(middle + 8 * ((address >> shadow.middle_shift) % shadow.middle_count)) if middle else None
    if not leaf:
        return False
    at = leaf + ((address >> shadow.granule_shift) % shadow.leaf_records) * shadow.record_size
    record = words.many(at, shadow.record_size // 8)
    if record is None:
        return False
    offset = _field(record, shadow.offset) << shadow.offset_shift
    granule = address >> shadow.granule_shift << shadow.granule_shift
    return not _field(record, shadow.live) and _field(record, root.freed) == 1 and granule + offset == address


def _field(record: Sequence[int], bits: Bits) -> int:
    """Return a number in the words of a record, 0 where it would lie outside."""
    return record[bits.word] >> bits.shift & ((1 << bits.width) - 1) if bits.word < len(record) else 0


def _damage(layout: bool, stacks: bool, log: bool, tables: int, entries: int) -> Iterator[str]:
    for wrong, what in ((layout, "records"), (stacks, "stacks"), (log, "log")):
        if wrong:
            yield f"the layout of the auditor's {what} makes no sense: dmods did not read them"
    if tables:
        yield f"{tables} of the auditor's tables are damaged or not wholly in the dump: records may be missing"
    if entries:
        yield f"{entries} of the auditor's records contradict themselves: dmods left them out"


def _shadow(root: Root) -> tuple[int, list[int], list[tuple[int, int, int]]]:
    """Return the layout of the records as _engine.read_audit takes it."""
    shadow = root.shadow
    bits = (shadow.live, shadow.offset, shadow.stack, shadow.thread, shadow.size, shadow.time, root.freed)
    shape = [
        shadow.top_shift,
        shadow.top_count,
        shadow.middle_shift,
        shadow.middle_count,
        shadow.granule_shift,
        shadow.leaf_records,
        shadow.record_size,
        shadow.offset_shift,
    ]
    return shadow.top, shape, [_bits(one) for one in bits]


def _bits(bits: Bits) -> tuple[int, int, int]:
    return bits.word, bits.shift, bits.width


def _table(table: Table) -> tuple[int, int, int, int, int]:
    return table.chunks, table.chunk_shift, table.chunk_count, table.entry_size, table.count


def _ring(ring: Ring) -> tuple[int, int, int]:
    return ring.entries, ring.capacity, ring.entry_size


def latest_moment(root: Root) -> Moment:
    return root.clock.latest[root.clock.latest_index & 1]


def clock_of(root: Root) -> Optional[tuple[int, int, int, int]]:
    """Return (ns at time 0, shift, numerator, denominator) as the engine takes them, or None where the clock's numbers
    make no sense."""
    clock, latest = root.clock, latest_moment(root)
    if clock.shift >= 64:
        return None
    if clock.kind != CLOCK_TICKS:
        return clock.start.monotonic, clock.shift, 1, 1
    passed, ticks = latest.monotonic - clock.start.monotonic, latest.ticks - clock.start.ticks
    return (clock.start.monotonic, clock.shift, passed, ticks) if passed > 0 and ticks > 0 else None


def threads_of(words: Words, table: Table) -> Iterator[RecordedThread]:
    """Yield the threads by their numbers. NOBODY stands for number 0 and for a thread that is missing or damaged."""
    if table.entry_size < THREAD.size or table.chunk_shift > 32:
        yield NOBODY
        return
    count = max(1, min(table.count, _MOST_THREADS, table.chunk_count << table.chunk_shift))
    chunk, data = -1, b""
    for index in range(count):
        if index >> table.chunk_shift != chunk:
            chunk = index >> table.chunk_shift
            here = min(count - (chunk << table.chunk_shift), 1 << table.chunk_shift)
            at = words.at(table.chunks + 8 * chunk)
            data = words.image.read(at, here * table.entry_size) if at else b""
        offset = (index - (chunk << table.chunk_shift)) * table.entry_size
        if index == 0 or offset + THREAD.size > len(data):
            yield NOBODY
            continue
        thread = read_thread(data, offset)
        yield RecordedThread(thread.tid, _text(thread.name) or None, thread.pthread or None) if thread.tid else NOBODY


def _own(target: Target, root: Root, words: Words) -> Iterator[tuple[int, int]]:
    """Yield the auditor's memory: of the ranges that it lists, the parts that lie in writable mappings."""
    writable = Ranges((m.start, m.end) for m in target.mappings() if "w" in m.flags)
    ranges = root.ranges
    if ranges.entry_size < RANGE.size:
        return
    data = words.image.read(ranges.entries, min(ranges.count, _MOST_RANGES) * ranges.entry_size)
    for offset in range(0, len(data) - RANGE.size + 1, ranges.entry_size):
        own = read_range(data, offset)
        if own.start < own.end and own.kind != RANGE_BOOTSTRAP:
            yield from writable.within(own.start, own.end)
