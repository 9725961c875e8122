"""What an address is, what it looks like, and who points to it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from dmods import heap as heaps
from dmods.blocks import STATES, arena_name
from dmods.callers import Callers
from dmods.command import Argument, Command, positive
from dmods.content import Content, look, mapping_of
from dmods.heap import DIRECT, INDIRECT, Block, ProcessHeap
from dmods.places import Places
from dmods.places import of as places_of
from dmods.recordviews import sentence
from dmods.report import Column, Report, Table, Value
from dmods.target import AddressRange, Target

_MOST_REFERRERS = 256  # that are looked at: the best of them are shown
_MOST_STEPS = 16  # from an indirect leak up to the direct one

ANSWER = (Column("address", "address", hidden=True), Column("kind", hidden=True), Column("sentence"))
MAPPING = (
    Column("start", "address", width=16, title="MAPPING"),
    Column("end", "address", width=16),
    Column("flags"),
    Column("offset", "address", title="OFFSET"),
    Column("path", title="FILE"),
)
BLOCK = (
    Column("block", "address", title="block"),
    Column("size", "bytes", title="  bytes"),
    Column("offset", "address", title="  offset of the address in it"),
    Column("allocator", title="  allocator"),
    Column("arena", title="  arena"),
    Column("state", title="  state"),
    Column("keeps_count", "count", title="  blocks it keeps alive"),
    Column("keeps_bytes", "bytes", title="  bytes it keeps alive"),
    Column("leaked_with", "address", title="  kept alive by the leaked block"),
    Column("looks_like", title="  looks like"),
    Column("requested", "bytes", title="  bytes asked for"),
    Column("allocated_by", title="  allocated by"),
    Column("bufctl", "address", title="  its record (bufctl)"),
)
FREED = (
    Column("address", "address", title="freed buffer"),
    Column("requested", "bytes", title="  bytes asked for"),
    Column("freed_by", title="  freed by"),
    Column("allocated_by", title="  allocated by"),
    Column("log", "address", title="  its record"),
)
CONTENT = (Column("offset", "address", title="+"), Column("address", "address", width=16), Column("what"))
REFERRERS = (
    Column("at", "address", width=16),
    Column("to", "address", title="TO +"),
    Column("register", hidden=True),
    Column("where"),
)


def run(target: Target, args: argparse.Namespace) -> Report:
    address = target.evaluate(args.address)
    heap = heaps.of(target)
    heap.leaks()  # or a leaked block would be called live
    places = places_of(target)
    found = places.at(address)
    block = heap.block_at(address)
    mapping = mapping_of(target, address)
    report = Report(notes=[*heap.notes, *heap.roots.notes])
    if found:
        sentences = [f"{address:#x} is {place.text}" for place in found]
        rows: list[tuple[Value, ...]] = [(address, place.kind, text) for place, text in zip(found, sentences)]
    else:
        rows = [(address, "nothing", f"{address:#x} is in no mapping{_neighbours(target, address)}")]
    report.tables.append(Table("whatis", ANSWER, rows, style="plain"))
    if block is not None:
        content = look(heap, block)
        report.tables.append(_record("block", BLOCK, _block(heap, block, address, content)))
        if content.points_to:
            report.tables.append(Table("points_to", CONTENT, content.points_to, title="points to"))
    if heap.records:
        report.tables.extend(_freed(heap, block, address))
        report.notes.extend(heap.records.notes)
    if mapping is not None:
        columns = MAPPING if mapping.path is not None else _without(MAPPING, "offset", "path")
        report.tables.append(Table("mapping", columns, [_mapping(mapping, address)]))
        report.tables.extend(_referrers(places, block, address, args.most, report))
    return report


def _record(name: str, columns: Sequence[Column], row: Sequence[Value]) -> Table:
    """In text without what does not apply; JSON has null there."""
    absent = [column.name for column, value in zip(columns, row) if value is None]
    return Table(name, _without(columns, *absent), [row], style="record")


def _without(columns: Sequence[Column], *names: str) -> list[Column]:
    return [replace(column, hidden=column.hidden or column.name in names) for column in columns]


def _neighbours(target: Target, address: int) -> str:
    below = next((mapping for mapping in reversed(target.mappings()) if mapping.end <= address), None)
    above = next((mapping for mapping in target.mappings() if mapping.start > address), None)
    parts = []
    if below:
        parts.append(f"{address - below.end:#x} bytes above the end of {_named(below)}")
    if above:
        parts.append(f"{above.start - address:#x} bytes below {_named(above)}")
    return ": " + ", ".join(parts) if parts else ""


def _named(mapping: AddressRange) -> str:
    return f"{mapping.start:#x}-{mapping.end:#x} {mapping.flags} ({mapping.path or 'anonymous'})"


def _mapping(mapping: AddressRange, address: int) -> tuple[Value, ...]:
    offset = mapping.offset + address - mapping.start if mapping.path is not None else None
    return mapping.start, mapping.end, mapping.flags, offset, mapping.path


def _block(heap: ProcessHeap, block: Block, address: int, content: Content) -> tuple[Value, ...]:
    direct = block.state == DIRECT
    return (
        block.address,
        block.size,
        address - block.address,
        block.allocator,
        arena_name(block.arena),
        STATES[block.state],
        block.kept_count if direct else None,
        block.kept_bytes if direct else None,
        _direct_leak(heap, block) if block.state == INDIRECT else None,
        content.summary() or None,
        *_allocation(heap, block),
    )


def _allocation(heap: ProcessHeap, block: Block) -> tuple[Value, Value, Value]:
    """(bytes asked for, by whom, where the record lies) of an allocated block."""
    record = heap.records.of_block(block.address) if block.state != heaps.FREE else None
    if record is None:
        return None, None, None
    callers = Callers(heap.target)
    by = sentence(callers, record.recording, record.thread, record.time, record.stack)
    return record.requested, by, record.bufctl


def _freed(heap: ProcessHeap, block: Optional[Block], address: int) -> Iterator[Table]:
    """Who freed what was there last, where the log goes back to it."""
    if block is not None and block.state != heaps.FREE:
        return
    last = heap.records.last_of(address)
    if last is None or not last.freed:
        return
    callers = Callers(heap.target)
    by = sentence(callers, last.recording, last.thread, last.time, last.stack)
    before = sentence(callers, last.recording, last.alloc_thread, last.alloc_time, last.alloc_stack)
    row = (last.address, last.requested, by, before if last.alloc_stack.frames else None, last.at)
    yield _record("freed", FREED, row)


def _direct_leak(heap: ProcessHeap, block: Block) -> Optional[int]:
    """A direct leak that leads to the block, going backwards from referrer to referrer; None if that takes too long."""
    pending, seen = [block], {block.address}
    for _step in range(_MOST_STEPS):
        if not pending:
            return None
        holders = [heap.block_at(at) for at in heap.referrers(pending.pop(0), _MOST_REFERRERS)]
        leaked = {holder.address: holder for holder in holders if holder is not None and holder.state >= DIRECT}
        for holder in leaked.values():
            if holder.state == DIRECT:
                return holder.address
        pending.extend(holder for holder in leaked.values() if holder.address not in seen)
        seen.update(leaked)
    return None


# -- who points to it -------------------------------------------------------------------------------------------------


def _referrers(places: Places, block: Optional[Block], address: int, most: int, report: Report) -> Iterator[Table]:
    """To anywhere in the block, or to exactly the address where it is in none."""
    low, high = (block.address, block.end) if block is not None else (address, address + 1)
    rows = list(_registers(places, low, high))
    found = places.heap.pointers([(low, high)], _MOST_REFERRERS)[0]
    outside = [at for at in found if not (block is not None and low <= at < high)]
    ranked = sorted(outside, key=lambda at: _rank(places, at))
    for at in ranked[:most]:
        value = places.heap.words.at(at) or low
        rows.append((at, value - low, None, places.brief(at)))
    if len(ranked) > most or len(found) == _MOST_REFERRERS:
        number = f"at least {len(outside)}" if len(found) == _MOST_REFERRERS else str(len(outside))
        report.notes.append(f"{number} words of memory point there; {min(most, len(ranked))} are shown (-n shows more)")
    title = "pointed to by" if rows else "nothing points to it"
    if rows:
        yield Table("pointed_to_by", REFERRERS, rows, title=title)
    else:
        yield Table("pointed_to_by", (), [], title=title, style="plain")


def _registers(places: Places, low: int, high: int) -> Iterator[tuple[Value, ...]]:
    for thread in places.target.threads():
        for name, value in thread.registers.items():
            if low <= value < high:
                yield None, value - low, name, f"register {name} of {places.thread_named(thread.tid)}"


def _rank(places: Places, at: int) -> tuple[int, int]:
    """What keeps alive comes first: roots, live blocks, leaked ones; then what is dead."""
    block = places.heap.block_at(at)
    if block is not None:
        return (2 if block.state >= DIRECT else 1 if block.state == heaps.LIVE else 3), at
    found = places.at(at)
    return (0 if found and found[0].holds else 3), at


COMMAND = Command(
    name="whatis",
    summary="what an address is: block, stack and frame, variable, mapping; and who points to it",
    description=(
        "For a block: allocator, arena, size, whether allocated, free (and on which list) or leaked, what it looks\n"
        "like (C++ class by its vtable, string, what its words point to), and where pointers to it lie: variables,\n"
        "stacks with their frames, registers, other blocks; those that keep it alive first. Where allocations were\n"
        "recorded: who allocated it, and, as far as the log goes back, who freed it."
    ),
    run=run,
    arguments=(
        Argument("-n", "--most", type=positive, default=8, metavar="N", help="show up to N pointers to it (8)"),
        Argument("address", metavar="ADDR", help="0x..., a symbol, symbol+offset"),
    ),
    examples=(
        ("whatis 0x55d0c8a012a0", "the block that the address points into"),
        ("whatis main", "a function"),
    ),
)
