"""Find the blocks that nothing points to any more."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dmods.allocators.jemalloc import heap as jemalloc
from dmods.base.cached import forget
from dmods.base.shapes import STACK_COLUMNS
from dmods.base.sizes import human_size
from dmods.command import Argument, Command, positive
from dmods.commands._records import CALLER_ARGUMENTS, LINES, SOURCE, audit, callers_asked, stack_values
from dmods.errors import ASK_WHATIS, UsageError
from dmods.graph.types import leaks_by_type
from dmods.heap.block import DIRECT, INDIRECT
from dmods.heap.blocks import arena_name
from dmods.heap.content import describe_content
from dmods.heap.leak_groups import LeakGroup, group_leaks, group_of_block, groups_through
from dmods.heap.leaks import Leaks
from dmods.heap.process_heap import NO_HEAP, ProcessHeap, find_heap, find_heap_unaligned
from dmods.heap.signal_stacks import signal_stack_notes
from dmods.heap.vector_roots import vector_notes
from dmods.heap.verdict import NO_VERDICT, leak_verdict, partial_note
from dmods.records.callers import UNKNOWN, Callers
from dmods.records.model import Record
from dmods.records.sources import HOW_TO_RECORD
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

_MOST_DETAILS = 32
_MOST_POINTERS = 4  # pointers shown for a representative
RULE = "-" * 72
_UNALIGNED = (
    "a pointer may begin at any byte (--unaligned): bytes of other data hold more blocks by accident, so leaks may be "
    "hidden; other commands take only aligned pointers"
)

# mdb's layout: see the libumem tutorial. Further columns stand to the right of mdb's.
_KEEPS = (
    Column("lost", "size", width=6),
    Column("keeps", width=0, title="KEEPS ALIVE"),
    Column("bytes", "bytes", hidden=True),
    Column("kept_count", "count", hidden=True),
    Column("kept_bytes", "bytes", hidden=True),
)
_LEAKED = Column("leaked", "count", width=7)
_BUFFER = Column("buffer", "address", width=17)
# Where nothing is recorded, the type or the shape tells leaks of one size apart.
GROUPS = (Column("cache", width=16), _LEAKED, _BUFFER, Column("caller", width=6), SOURCE, *_KEEPS, Column("type"))
RECORDED = (
    Column("cache", width=16),
    _LEAKED,
    Column("bufctl", "address", width=17),
    Column("caller", width=6),
    SOURCE,
    *_KEEPS,
    replace(_BUFFER, hidden=True),
    Column("requested", "bytes", hidden=True),
    *STACK_COLUMNS,
)
OVERSIZED = (
    Column("size", "bytes", width=16, title="BYTES"),
    _LEAKED,
    Column("vmem_seg", "address", width=17),
    Column("caller", width=6),
    SOURCE,
    *_KEEPS,
    *RECORDED[-4:],
    Column("type"),
)
DETAILS = (
    Column("buffer", "address", width=16),
    Column("size", "bytes"),
    Column("arena"),
    Column("kept_count", "count", title="KEEPS"),
    Column("kept_bytes", "bytes", title="KEPT BYTES"),
    Column("looks_like", title="LOOKS LIKE"),
    Column("pointed_to_by", title="POINTED TO BY"),
)
INDIRECTS = (Column("buffer", "address", width=16), Column("size", "bytes"), Column("arena"))


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the leaks, grouped."""
    if args.force:
        forget(target)
    heap = find_heap_unaligned(target) if args.unaligned else find_heap(target)
    callers = callers_asked(target, args, lines=args.lines or args.details)
    report = Report(notes=list(heap.notes))
    if not heap.found:
        report.notes.insert(0, NO_HEAP)
    leaks = heap.leaks()
    report.verdict = leak_verdict(heap)
    report.notes.extend(partial_note(report.verdict))
    report.notes.extend(heap.roots.notes)
    report.notes.extend(vector_notes(heap, leaks))
    if args.unaligned:
        report.notes.append(_UNALIGNED)
    groups = group_leaks(heap, callers) if heap.records else leaks_by_type(heap, callers)
    report.notes.extend(heap.records.notes)
    report.notes.extend(signal_stack_notes(target, leaks))
    if args.what is not None:
        groups = _only(heap, callers, groups, args.what, report)
    shown = groups[: args.top]
    if len(shown) < len(groups):
        hidden = sum(group.lost for group in groups[len(shown) :])
        report.notes.append(f"{len(groups) - len(shown)} smaller groups, {hidden} bytes, are not shown (--top)")
    if heap.records.sampled and any(group.record is None for group in shown):
        report.notes.append(f"only samples were recorded: of the other leaks the caller is not known ({UNKNOWN})")
    _add_groups(report, callers, shown, leaks, args.lines)
    if args.details:
        report.tables.extend(_details(heap, callers, shown, report.notes))
    if args.indirect:
        report.tables.append(Table("indirect", INDIRECTS, _indirects(heap), title="Indirectly leaked"))
    report.totals = _totals(leaks)
    if args.verbose:
        report.tables.append(_figures(heap, leaks))
    if not report.verdict.possible:
        report.status = NO_VERDICT
    elif args.fail_on_leak and leaks.direct_count:
        report.status = 3
    return report


def _only(heap: ProcessHeap, callers: Callers, groups: list[LeakGroup], text: str, report: Report) -> list[LeakGroup]:
    """Return the groups that the user asks for.

    That is the leak that contains the address or whose record lies there. Otherwise, the groups whose stack passes
    through the address, or through the function that begins there.
    """
    address = heap.target.evaluate(text)
    entry = heap.records.at(address)
    block = heap.block_at(entry.address if isinstance(entry, Record) else address)
    if block is not None:
        if block.state not in (DIRECT, INDIRECT):
            raise UsageError(f"the block at {block.address:#x} is not leaked", ASK_WHATIS)
        return [group_of_block(heap, callers, block)]
    if not heap.records:
        report.notes.append(
            f"no leak has {text} in its stack: there are no allocation records (CALLER {UNKNOWN}); "
            f"an address within a block works. {HOW_TO_RECORD[0].upper()}{HOW_TO_RECORD[1:]}"
        )
        return []
    found = groups_through(heap, callers, groups, address)
    if not found:
        report.notes.append(f"no leak has {text} in its stack")
    return found


def _add_groups(report: Report, callers: Callers, groups: list[LeakGroup], leaks: Leaks, lines: bool) -> None:
    recorded = [group for group in groups if not group.single and group.record is not None]
    unknown = [group for group in groups if not group.single and group.record is None]
    large = [group for group in groups if group.single]
    tables: list[tuple[int, Table]] = []  # (the bytes of the first row, the table)
    keeps, kinds = any(group.kept_count for group in groups), any(group.kind for group in groups)
    recorded_columns, plain, oversized = (
        _columns(columns, keeps, lines, kinds) for columns in (RECORDED, GROUPS, OVERSIZED)
    )
    if recorded:
        rows = [(group.cache, *_row(group), group.first, *_recorded(callers, group)) for group in recorded]
        tables.append((recorded[0].lost, Table("leaks", recorded_columns, rows)))
    if unknown or not (recorded or large):
        rows = [(group.cache, *_row(group), group.kind or None) for group in unknown]
        name = "unrecorded" if recorded else "leaks"
        tables.append((unknown[0].lost if unknown else 0, Table(name, plain, rows)))
    if large:
        rows = [
            (group.size, *_row(group), group.first, *_recorded(callers, group), group.kind or None) for group in large
        ]
        tables.append((large[0].lost, Table("oversized", oversized, rows)))
    tables.sort(key=lambda entry: -entry[0])
    if leaks.direct_count or report.verdict is None or report.verdict.possible:  # "0 buffers" would read as clean
        tables[-1][1].footer = _footer(leaks)
    report.tables.extend(table for _lost, table in tables)


def _columns(columns: Sequence[Column], keeps: bool, lines: bool, kinds: bool) -> Sequence[Column]:
    """Return the columns. KEEPS ALIVE and TYPE are only shown where they say something, SOURCE where asked for."""
    shown = {"keeps": keeps, SOURCE.name: lines, "type": kinds}
    return [replace(c, hidden=not shown.get(c.name, not c.hidden)) for c in columns]


def _row(group: LeakGroup) -> tuple[Value, ...]:
    """Return the cells from "leaked" on."""
    place = group.record.bufctl if group.record is not None else group.first
    keeps = f"{_count(group.kept_count)}, {group.kept_bytes} bytes" if group.kept_count else ""
    kept = (keeps, group.bytes, group.kept_count, group.kept_bytes)
    return group.count, place, group.caller.text, group.caller.source or None, group.lost, *kept


def _recorded(callers: Callers, group: LeakGroup) -> tuple[Value, ...]:
    """Return what the record of the representative says: the bytes asked for, and the stack."""
    if group.record is None:
        return None, None, None
    return group.record.requested, *stack_values(callers, group.record.stack)


def _footer(leaks: Leaks) -> list[str]:
    """Return the last lines of the listing: what leaked, what that keeps alive, and the whole loss."""
    lines = [RULE, _sum("Total", leaks.direct_count, leaks.direct_bytes)]
    if leaks.indirect_count:
        lines.append(_sum("Kept alive", leaks.indirect_count, leaks.indirect_bytes) + " (indirect: -i lists them)")
        size = leaks.direct_bytes + leaks.indirect_bytes
        lost = _sum("Lost", leaks.direct_count + leaks.indirect_count, size)
        lines.append(lost if size < 1024 else f"{lost} ({human_size(size)})")
    return lines


def _sum(label: str, count: int, size: int) -> str:
    return f"{label:>16} {count:7} {_noun(count)}, {size} bytes"


def _noun(count: int) -> str:
    return "buffer" if count == 1 else "buffers"


def _count(count: int) -> str:
    return f"{count} {_noun(count)}"


def _details(heap: ProcessHeap, callers: Callers, groups: list[LeakGroup], notes: list[str]) -> Iterator[Table]:
    """Yield a table with a row for each representative, and the record of each as `bufctl -v` shows it.

    All memory is searched for pointers to the representatives, so their number is limited.
    """
    if len(groups) > _MOST_DETAILS:
        notes.append(f"details of the first {_MOST_DETAILS} of {len(groups)} groups; `whatis` has those of any block")
    yield Table("details", DETAILS, list(_looks(heap, groups[:_MOST_DETAILS])))
    recorded = [(group, group.record) for group in groups[:_MOST_DETAILS] if group.record is not None]
    tables = audit(heap.target, callers, *(record for _group, record in recorded))
    if recorded:
        yield next(tables)  # for JSON
    for (group, _record), head, stack in zip(recorded, tables, tables):
        each = f"{_count(group.count)}, {group.size} bytes each, {group.bytes} bytes total"
        head.title = f"{group.cache} leak: {each}"
        yield head
        yield stack


def _looks(heap: ProcessHeap, groups: list[LeakGroup]) -> Iterator[tuple[Value, ...]]:
    from dmods.heap.locate import address_finder

    places = address_finder(heap.target)
    blocks = [block for group in groups if (block := heap.block_at(group.first)) is not None]
    pointers = heap.pointers([(block.address, block.end) for block in blocks], _MOST_POINTERS)
    for block, found in zip(blocks, pointers):
        others = [at for at in found if not block.address <= at < block.end]
        yield (
            block.address,
            block.size,
            arena_name(block.arena),
            block.kept_count,
            block.kept_bytes,
            describe_content(heap, block).summary() or None,
            "; ".join(f"{at:#x} ({places.brief(at)})" for at in others) or "nothing",
        )


def _indirects(heap: ProcessHeap) -> Iterator[tuple[Value, ...]]:
    for block in heap.blocks(INDIRECT):
        yield block.address, block.size, arena_name(block.arena)


def _totals(leaks: Leaks) -> dict[str, Value]:
    return {
        "direct_count": leaks.direct_count,
        "direct_bytes": leaks.direct_bytes,
        "indirect_count": leaks.indirect_count,
        "indirect_bytes": leaks.indirect_bytes,
        "leaked_count": leaks.direct_count + leaks.indirect_count,
        "leaked_bytes": leaks.direct_bytes + leaks.indirect_bytes,
    }


def _figures(heap: ProcessHeap, leaks: Leaks) -> Table:
    """Return the figures of the run, as mdb's ::findleaks -v prints them."""
    columns = (
        Column("actual_buffers", "count", title="actual buffers"),
        Column("arenas", "count", title="arenas"),
        Column("tcaches", "count", title="tcaches"),
        Column("heap_bytes", "bytes", title="bytes of heap"),
        Column("root_bytes", "bytes", title="bytes of roots"),
        Column("potential_pointers", "count", title="potential pointers in roots"),
        Column("reached", "count", title="buffers reached"),
        Column("leaked", "count", title="buffers leaked"),
        Column("wall_seconds", title="elapsed wall seconds"),
        Column("cpu_seconds", title="CPU seconds"),
    )
    row: tuple[Value, ...] = (
        sum(row[1] + row[3] for row in heap.index.sizes()),
        len(heap.arenas) + len(jemalloc.arenas(heap.jemallocs)),
        len(heap.caches.tcaches) + sum(len(caches.all) for caches in heap.jemalloc_caches),
        heap.bytes,
        leaks.root_bytes,
        leaks.root_candidates,
        leaks.reached,
        leaks.direct_count + leaks.indirect_count,
        round(leaks.seconds, 3),
        round(leaks.cpu_seconds, 3),
    )
    return Table("figures", columns, [row], style="record")


COMMAND = Command(
    name="findleaks",
    summary="blocks that nothing points to any more, and what they keep alive",
    description=(
        "Conservative mark from registers (vector registers too), stacks from SP up, the data of every module, TLS\n"
        "and all other memory that is not malloc's; a pointer anywhere into a block keeps it alive. A pointer is a\n"
        "word at a multiple of its size (--unaligned: at any byte). A direct leak is one that no other\n"
        "leaked block leads to (of a cycle: the lowest address); what leaks with it is indirect, and is counted\n"
        "with one direct leak. Results are kept until the process moves.\n\n"
        "Exit status 4 means that no verdict is possible: there is no heap that dmods can walk, or the dump lacks\n"
        "most of it, or the dump lacks the stacks.\n\n"
        "Where allocations were recorded (`dmods run -- PROG`), leaks are added up by stack, the oldest stands for\n"
        "the others, and BUFCTL (VMEM_SEG for those with a mapping of their own) is its record: see `bufctl_audit`."
    ),
    run=run,
    arguments=(
        Argument(
            "-d",
            "--details",
            action="store_true",
            help="show what each representative looks like, who points to it, and its allocation record",
        ),
        Argument("-f", "--force", action="store_true", help="do not use the results of the last run"),
        Argument("-i", "--indirect", action="store_true", help="list the indirectly leaked blocks too"),
        Argument("-v", "--verbose", action="store_true", help="show the figures of the run"),
        Argument(
            "--unaligned",
            action="store_true",
            help="a pointer may begin at any byte, as in packed structures: leaks may be hidden",
        ),
        Argument("--top", type=positive, metavar="N", help="only the N groups that hold most memory"),
        *CALLER_ARGUMENTS,
        LINES,
        Argument("--fail-on-leak", action="store_true", help="exit status 3 if something leaked"),
        Argument(
            "what",
            nargs="?",
            metavar="ADDR|FUNCTION",
            help="only leaks with this in their stack, or the one at this address",
        ),
    ),
    examples=(
        ("findleaks", "direct leaks by size, with a representative of each"),
        ("findleaks -d --top 3", "the three largest groups in detail"),
        ("findleaks 0x55d0c8a012a0", "the leaked block at this address"),
        ("findleaks func_leak", "what was allocated from func_leak down, where allocations were recorded"),
    ),
)
