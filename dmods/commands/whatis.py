"""Say what lies at an address, what its bytes look like, and who points to it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.allocators.directory import allocators
from dmods.base.dataclass import replace
from dmods.base.hexdump import ROW
from dmods.command import Argument, Command, positive
from dmods.commands._guards import GUARDS, guards_sentence, guards_table
from dmods.commands._records import sentence, stack_values, thread_named
from dmods.commands._whatis_python import ITEMS, OBJECT, python_tables
from dmods.commands._whatis_tables import ANSWER, BYTES, DUMPED, HOLDERS, answer_table, bytes_table, holders_table
from dmods.commands.pathto import STEPS, path_table
from dmods.graph.owners.root_paths import path_to
from dmods.graph.roots.named_roots import named_roots
from dmods.graph.types.descriptions import typed
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE, Block
from dmods.heap.blocks import STATES, arena_name
from dmods.heap.content import Content, describe_content
from dmods.heap.guards import verify
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.holders import Holder, find_holders
from dmods.heap.locate import AddressFinder, address_finder
from dmods.process.mappings import mapping_at
from dmods.process.shapes import STACK_COLUMNS, holder_value, stack_columns
from dmods.records.callers import Callers
from dmods.records.last_words import last_words_sentence
from dmods.records.model import LastWords, Transaction
from dmods.report import Column, Report, Schema, Table, Value
from dmods.target import AddressRange, Target

_MOST_REFERRERS = 256  # words that are followed from each block on the way up to a direct leak
_MOST_STEPS = 16  # blocks on the way up to a direct leak

MAPPING = Schema(
    "mapping",
    "the mapping",
    (
        Column("start", "address", width=16, title="MAPPING"),
        Column("end", "address", width=16),
        Column("flags"),
        Column("offset", "address", title="OFFSET", null="the mapping is anonymous", about="of the file"),
        Column("path", title="FILE", null="the mapping is anonymous", about="of the file"),
    ),
    when="where the address is mapped",
)
BLOCK = Schema(
    "block",
    "the block",
    (
        Column("block", "address", title="block"),
        Column("size", "bytes", title="  bytes"),
        Column("offset", "address", title="  offset of the address in it"),
        Column("allocator", title="  allocator"),
        Column("arena", title="  arena"),
        Column("state", title="  state"),
        Column("keeps_count", "count", title="  blocks it keeps alive", null="it is not a direct leak"),
        Column("keeps_bytes", "bytes", title="  bytes it keeps alive", null="it is not a direct leak"),
        Column(
            "leaked_with",
            "address",
            title="  kept alive by the leaked block",
            null="it is not an indirect leak, or that is not known",
        ),
        Column("looks_like", title="  looks like", null="nothing is known of its content"),
        Column("requested", "bytes", title="  bytes asked for", null="nothing is recorded"),
        Column("allocated_by", title="  allocated by", null="nothing is recorded"),
        Column("bufctl", "address", title="  its record (bufctl)", null="nothing is recorded"),
        *STACK_COLUMNS,
    ),
    when="where a block is there",
)
_EARLIER = (
    Column("requested", "bytes", title="  bytes asked for", null="it is not known"),
    Column("freed_by", title="  freed by"),
    Column("allocated_by", title="  allocated by", null="it is not known"),
    Column("log", "address", title="  its record", null="it is not known"),
    *STACK_COLUMNS,
    *stack_columns("alloc_", "it is not known"),
)
FREED = Schema(
    "freed",
    "the block that was freed there",
    (Column("address", "address", title="freed buffer"), *_EARLIER),
    when="where the log has its free",
)
PREVIOUS = Schema(
    "previous",
    "the block that was freed there before this one was allocated",
    (Column("address", "address", title="buffer that lay here before"), *_EARLIER),
    when="where the log has its free",
)
STOPPED = Schema(
    "stopped",
    "the block whose free the auditor stopped",
    (
        Column("address", "address", title="buffer whose free was stopped"),
        Column("requested", "bytes", title="  bytes asked for", null="it is not known"),
        Column("freed_by", title="  to be freed by"),
        *_EARLIER[2:],
    ),
    when="where the auditor stopped the program",
)
CONTENT = Schema(
    "points_to",
    "a word of the block that points somewhere",
    (Column("offset", "address", title="+"), Column("address", "address", width=16), Column("what")),
    when="where a block is there that has some",
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return a description of the address."""
    address = target.evaluate(args.address)
    heap = find_heap(target)
    finder = address_finder(target)
    places = finder.at(address)
    block = heap.block_at(address)
    mapping = mapping_at(target, address)
    report = Report(notes=[*heap.notes, *heap.roots.notes])
    sentences = [(place.kind, f"{address:#x} is {place.text}") for place in places]
    sentences = [*_stopped(heap, block, address), *sentences]
    if not places:
        sentences += [("nothing", f"{address:#x} is in no mapping{_neighbours(target, address)}")]
    report.tables.append(answer_table(address, sentences))
    if block is not None:
        content = describe_content(heap, block)
        report.tables.append(_record(BLOCK, _block(heap, block, address, content)))
        if content.points_to:
            report.tables.append(CONTENT.table(content.points_to, title="points to"))
    path = (
        path_to(named_roots(target), block.address) if block is not None and block.state in (LIVE, INDIRECT) else None
    )
    report.tables.extend(python_tables(target, block, address, path))
    if block is not None:
        garbage = heap.marks.is_garbage(block)
        report.tables.extend(table for one in heap.heaps for table in one.tables(block, garbage))
    if heap.records:
        report.tables.extend(_earlier(heap, block, address))
        report.tables.extend(_overwritten(target, block, address))
        report.notes.extend(heap.records.notes)
    if mapping is not None:
        read = target.image().read
        if read(address // ROW * ROW, 1):
            report.tables.append(bytes_table(read, address, block.end if block is not None else None, args.dump))
        columns = MAPPING.columns if mapping.path is not None else _without(MAPPING.columns, "offset", "path")
        report.tables.append(MAPPING.table([_mapping(mapping, address)], columns))
        report.tables.append(_pointed_to_by(finder, block, address, args.most, report))
        if path is not None:
            title = f"kept alive by {path.root.name}" if path.root is not None else "leaked with"
            report.tables.append(path_table(path, title, report))
    return report


def _record(schema: Schema, row: Sequence[Value]) -> Table:
    """Return a table of one row. Text leaves out what does not apply; JSON has null there."""
    absent = [column.name for column, value in zip(schema.columns, row) if value is None]
    return schema.table([row], _without(schema.columns, *absent), style="record")


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
        "garbage, not yet collected"
        if heap.marks.is_garbage(block)
        else heap.marks.doubtful.get(block.address) or STATES[block.state],
        block.kept_count if direct else None,
        block.kept_bytes if direct else None,
        _direct_leak(heap, block) if block.state == INDIRECT else None,
        typed(heap, block, content) or None,
        *_allocation(heap, block),
    )


def _allocation(heap: ProcessHeap, block: Block) -> tuple[Value, ...]:
    """Return the cells of BLOCK from "requested" on, for an allocated block that has a record."""
    record = heap.records.of_block(block.address) if block.state != FREE else None
    if record is None:
        return (None,) * 5
    callers = Callers(heap.target)
    by = sentence(callers, record.recording, record.thread, record.time, record.stack)
    return record.requested, by, record.bufctl, *stack_values(callers, record.stack)


def _earlier(heap: ProcessHeap, block: Optional[Block], address: int) -> Iterator[Table]:
    """Yield who freed the memory last, as far as the log goes back.

    For an allocated block this is the buffer that lay here before it.
    """
    words = heap.records.last_words
    if words is not None and words.kind == "overrun" and block is not None and words.block == block.address:
        # The log may have the free already: the auditor looks at the block after that.
        yield _record(STOPPED, _being_freed(heap, words))
        return
    if block is None or block.state == FREE:
        last = heap.records.last_of(address)
        if last is not None and last.freed:
            yield _record(FREED, _transaction(heap, last))
        return
    before = heap.records.last_freed(address)
    if before is not None:
        yield _record(PREVIOUS, _transaction(heap, before))


def _stopped(heap: ProcessHeap, block: Optional[Block], address: int) -> Iterator[tuple[str, str]]:
    """Yield why the auditor stopped the program, where that has to do with the address."""
    words = heap.records.last_words
    if words is not None and (words.concerns(address) or (block is not None and words.concerns(block.address))):
        text = last_words_sentence(Callers(heap.target), heap.records, words)
        yield "stopped", f"the auditor stopped the program: {text}"


def _overwritten(target: Target, block: Optional[Block], address: int) -> Iterator[Table]:
    """Yield what was written over the guards of the block."""
    found = verify(target)
    start = block.address if block is not None else address
    findings = [each for each in found.blocks if each.address == start] if found is not None else []
    if findings:
        title = "its guards were overwritten: " + "; ".join(map(guards_sentence, findings))
        yield guards_table(Callers(target), findings, title)


def _transaction(heap: ProcessHeap, freed: Transaction) -> tuple[Value, ...]:
    callers = Callers(heap.target)
    by = sentence(callers, freed.recording, freed.thread, freed.time, freed.stack)
    allocated: tuple[Value, ...] = (None, None)
    before = None
    if freed.alloc_stack.frames:
        before = sentence(callers, freed.recording, freed.alloc_thread, freed.alloc_time, freed.alloc_stack)
        allocated = stack_values(callers, freed.alloc_stack)
    stack = stack_values(callers, freed.stack)
    return freed.address, freed.requested, by, before, freed.at, *stack, *allocated


def _being_freed(heap: ProcessHeap, words: LastWords) -> tuple[Value, ...]:
    """Return the cells of STOPPED: the block whose free or realloc the auditor stopped."""
    callers, records = Callers(heap.target), heap.records
    stack, thread = records.last_words_stack(words), records.last_words_thread(words)
    by = f"{callers.caller(stack).text}, {thread_named(thread)}"
    last = records.last_of(words.address)
    if last is None or last.address != words.block:
        return words.block, words.requested, by, None, None, *stack_values(callers, stack), None, None
    owner = last.thread, last.time, last.stack
    if last.freed:
        owner = last.alloc_thread, last.alloc_time, last.alloc_stack
    allocated = sentence(callers, last.recording, *owner) if owner[2].frames else None
    alloc_stack = stack_values(callers, owner[2]) if owner[2].frames else (None, None)
    return words.block, words.requested, by, allocated, last.at, *stack_values(callers, stack), *alloc_stack


def _direct_leak(heap: ProcessHeap, block: Block) -> Optional[int]:
    """Return a direct leak that leads to the block, found from referrer to referrer; None if that takes too long."""
    pending, seen = [block], {block.address}
    for _step in range(_MOST_STEPS):
        if not pending:
            return None
        holders = [heap.block_at(at) for at in heap.index.referrers(pending.pop(0), _MOST_REFERRERS)]
        leaked = {each.address: each for each in holders if each is not None and each.state in (DIRECT, INDIRECT)}
        for holder in leaked.values():
            if holder.state == DIRECT:
                return holder.address
        pending.extend(holder for holder in leaked.values() if holder.address not in seen)
        seen.update(leaked)
    return None


# -- who points to it -------------------------------------------------------------------------------------------------


def _pointed_to_by(finder: AddressFinder, block: Optional[Block], address: int, most: int, report: Report) -> Table:
    """Return what points into the block, or to exactly the address if it lies in no block."""
    found = find_holders(finder, block, address)
    registers = [holder for holder in found.all if holder.register is not None]
    words = [holder for holder in found.all if holder.register is None]
    if len(words) > most or not found.complete:
        number = str(len(words)) if found.complete else f"at least {len(words)}"
        report.notes.append(f"{number} words of memory point there; {min(most, len(words))} are shown (-n shows more)")
    rows = [_holder_row(finder, holder) for holder in (*registers, *words[:most])]
    return holders_table(rows)


def _holder_row(finder: AddressFinder, holder: Holder) -> tuple[Value, ...]:
    if holder.address is None:
        where, kind = f"register {holder.register} of {finder.thread_named(holder.tid)}", "register"
    else:
        places = finder.at(holder.address)
        where, kind = finder.brief(holder.address), places[0].kind if places else "nothing"
    note = "points back: only this block leads to it" if holder.returns else ""
    if holder.unread:
        note = "holds nothing: no program reads this as a pointer"
    value = holder_value(
        holder.address,
        holder.state,
        kind,
        offset=holder.offset,
        where=where,
        block=holder.block.address if holder.block is not None else None,
    )
    return holder.address, holder.offset, holder.register, where, note, {**value, "keeps": holder.keeps}


def _tables() -> Sequence[Schema]:
    """Return the tables of every process, and what allocators say of a block."""
    theirs = (schema for one in allocators() for schema in one.declared().of_block)
    of_block = (BLOCK, CONTENT, OBJECT, ITEMS, *theirs, STOPPED, FREED, PREVIOUS, GUARDS)
    path = replace(STEPS, when="where a root or a leak leads to the block")
    return (ANSWER, *of_block, BYTES, MAPPING, HOLDERS, path)


COMMAND = Command(
    name="whatis",
    summary="what an address is: block, stack and frame, variable, mapping; and who points to it",
    description=(
        "For a block, whatis shows its allocator, arena and size. It says whether the block is allocated, free\n"
        "(and on which list) or leaked, and what it looks like: a C++ class by its vtable, a string, or what its\n"
        "words point to. Its first bytes follow.\n\n"
        "For an object of CPython, whatis shows its type, its value and how a variable leads to it, as Python would\n"
        "write it: app.store.cache[1000]['text']. A local variable has the file, line and function of its frame.\n\n"
        "Then whatis lists where pointers to the block lie: variables, stacks with their frames, registers, other\n"
        "blocks. Pointers that keep the block alive come first: a path from a root leads to them without passing\n"
        "the block itself.\n\n"
        "If allocations were recorded, whatis says who allocated the block. If there is a log, it also says who freed\n"
        "the block, or who had this memory before, as far as the log goes back."
    ),
    run=run,
    tables=_tables,
    arguments=(
        Argument("-n", "--most", type=positive, default=8, metavar="N", help="show up to N pointers to it (8)"),
        Argument("--dump", type=positive, metavar="N", help=f"show N bytes ({DUMPED}, or as many as the block has)"),
        Argument("address", metavar="ADDR", help="0x..., a symbol, symbol+offset"),
    ),
    examples=(
        ("whatis 0x55d0c8a012a0", "the block that the address points into"),
        ("whatis 0x55d0c8a012a0 --dump 1024", "the same, with 1024 bytes from there on"),
        ("whatis main", "a function"),
    ),
)
