"""Find the blocks that nothing points to any more."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from dmods.base.cached import forget
from dmods.base.dataclass import replace
from dmods.base.sizes import counted
from dmods.command import Argument, Command, positive
from dmods.commands._leak_tables import (
    GROUPS,
    MOST_DETAILS,
    TOTALS,
    LeakRow,
    Sums,
    footer,
    set_status,
    smaller_groups,
    sums_of,
    tables_of_groups,
    tables_of_records,
    totals,
)
from dmods.commands._records import CALLER_ARGUMENTS, HEAD, LINES, audit, callers_asked, stack_values
from dmods.errors import ASK_WHATIS, UsageError
from dmods.graph.types.typed_rows import leaks_by_type
from dmods.heap.block import DIRECT, INDIRECT
from dmods.heap.blocks import arena_name
from dmods.heap.follow import Follow
from dmods.heap.heap import ProcessHeap, find_heap_as
from dmods.heap.leak_totals import Leaks
from dmods.heap.leaks.doubtful import doubtful_blocks, doubtful_notes, vector_notes
from dmods.heap.leaks.groups import LeakGroup, group_leaks, group_of_block, groups_through
from dmods.heap.leaks.odd_pointers import odd_notes
from dmods.heap.signal_stacks import signal_stack_notes
from dmods.heap.verdict import leak_verdict, partial_note
from dmods.records.callers import UNKNOWN, Callers
from dmods.records.model import Record
from dmods.records.sources import HOW_TO_RECORD
from dmods.report import Column, Report, Schema, Table, Value
from dmods.target import Target

_MOST_POINTERS = 4  # pointers shown for a representative
_UNALIGNED = (
    "a pointer may begin at any byte (--unaligned): bytes of other data hold more blocks by accident, so leaks may be "
    "hidden; other commands take only aligned pointers"
)
_TAGGED = (
    "a pointer may have a tag above its 47 or 48 bits (--tagged): numbers and text may look like that, so leaks may be "
    "hidden; other commands take only plain pointers"
)
_STALE_LINKS = (
    "a block that is zero but for a link in its first word keeps nothing alive (--stale-links): a node of the program "
    "may look like that, so a reported block may be in use; other commands follow such links"
)

DETAILS = Schema(
    "details",
    "the block that stands for a group",
    (
        Column("buffer", "address", width=16),
        Column("size", "bytes"),
        Column("arena"),
        Column("kept_count", "count", title="KEEPS", about="what the block keeps alive"),
        Column("kept_bytes", "bytes", title="KEPT BYTES", about="what the block keeps alive"),
        Column("looks_like", title="LOOKS LIKE", null="nothing is known of its content"),
        Column("pointed_to_by", title="POINTED TO BY", about="in words"),
    ),
    when="with -d",
)
INDIRECTS = Schema(
    "indirect",
    "a block that only leaked blocks lead to",
    (Column("buffer", "address", width=16), Column("size", "bytes"), Column("arena")),
    when="with -i",
)
DOUBTFUL = Schema(
    "doubtful", "a block that may have leaked", (*INDIRECTS.columns, Column("why")), when="with --doubtful"
)

_FIGURES = Schema(
    "figures",
    "the figures of the search",
    (
        Column("actual_buffers", "count", title="actual buffers"),
        Column("arenas", "count", title="arenas"),
        Column("tcaches", "count", title="tcaches"),
        Column("heap_bytes", "bytes", title="bytes of heap"),
        Column("root_bytes", "bytes", title="bytes of roots"),
        Column("potential_pointers", "count", title="potential pointers in roots"),
        Column("reached", "count", title="buffers reached"),
        Column("leaked", "count", title="buffers leaked"),
        Column("wall_seconds", "seconds", title="elapsed wall seconds"),
        Column("cpu_seconds", "seconds", title="CPU seconds"),
    ),
    when="with -v",
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the leaks, grouped."""
    if args.force:
        forget(target)
    heap = find_heap_as(target, Follow(args.unaligned, args.tagged, args.stale_links))
    callers = callers_asked(target, args, lines=args.lines or args.details)
    report = Report(notes=list(heap.notes))
    if not heap.found:
        from dmods.heap.no_heap import no_heap

        report.notes.insert(0, no_heap(target))
    leaks = heap.leaks()
    report.verdict = leak_verdict(heap)
    report.notes.extend(partial_note(report.verdict))
    report.notes.extend(heap.roots.notes)
    report.notes.extend(vector_notes(heap, leaks))
    report.notes.extend(one.note for one in heap.marks.garbage)
    report.notes.extend(doubtful_notes(heap))
    report.notes.extend(odd_notes(heap))
    if args.unaligned:
        report.notes.append(_UNALIGNED)
    if args.tagged:
        report.notes.append(_TAGGED)
    if args.stale_links:
        report.notes.append(_STALE_LINKS)
    groups = group_leaks(heap, callers) if heap.records else leaks_by_type(heap, callers, sample=True)
    report.notes.extend(heap.records.notes)
    report.notes.extend(signal_stack_notes(target, leaks))
    sums: Sums = leaks
    if args.what is not None:
        groups = _only(heap, callers, groups, args.what, report)
        sums = sums_of(groups)
    whole = leaks if args.what is not None else None
    shown = groups[: args.top]
    report.notes += smaller_groups([group.lost for group in groups], len(shown))
    report.notes += _unknown(heap, shown)
    _add_groups(report, callers, shown, args.lines)
    if sums.direct_count or report.verdict.possible:  # "0 buffers" would read as clean
        report.tables[-1].footer = footer(sums, whole)
    if args.details:
        report.tables.extend(_details(heap, callers, shown, report.notes))
    if args.indirect:
        report.tables.append(INDIRECTS.table(_indirects(heap), title="Indirectly leaked"))
    if args.doubtful:
        rows = [(block.address, block.size, arena_name(block.arena), why) for block, why in doubtful_blocks(heap)]
        report.tables.append(DOUBTFUL.table(rows, title="Leaked or not"))
    report.totals = totals(sums, whole)
    if not report.verdict.possible:
        report.totals = dict.fromkeys(report.totals)
    if args.verbose:
        report.tables.append(_figures(heap, leaks))
    set_status(report, args.fail_on_leak, sums.direct_count)
    return report


def _unknown(heap: ProcessHeap, groups: Sequence[LeakGroup]) -> Iterator[str]:
    """Yield what is not known of the groups, or not for certain, as notes."""
    guessed = sum(group.guessed for group in groups)
    if guessed:
        which = f"the type of {counted(guessed, 'leaked block')}"
        yield f"{which} is that of live objects that look alike: `whattype ADDR` names one"
    sampled = sum(group.sampled for group in groups)
    if sampled:
        which = f"the type of {counted(sampled, 'leaked block')}"
        yield f"{which} is that of some blocks of the group: `types` looks at every block"
    if heap.records.sampled and any(group.record is None for group in groups):
        yield f"only samples were recorded: of the other leaks the caller is not known ({UNKNOWN})"


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


def _add_groups(report: Report, callers: Callers, groups: list[LeakGroup], lines: bool) -> None:
    tables = tables_of_groups([_row(callers, group) for group in groups], lines, typed=True)
    tables.sort(key=lambda entry: -entry[0])
    report.tables.extend(table for _lost, table in tables)


def _row(callers: Callers, group: LeakGroup) -> LeakRow:
    record = group.record
    return LeakRow(
        cache=group.cache,
        size=group.size,
        count=group.count,
        kept_count=group.kept_count,
        kept_bytes=group.kept_bytes,
        first=group.first,
        record=record.bufctl if record is not None else None,
        caller=group.caller.text,
        source=group.caller.source or None,
        requested=record.requested if record is not None else None,
        stack=stack_values(callers, record.stack) if record is not None else (None, None),
        single=group.single,
        kind=group.kind or None,
    )


def _details(heap: ProcessHeap, callers: Callers, groups: list[LeakGroup], notes: list[str]) -> Iterator[Table]:
    """Yield a table with a row for each representative, and the record of each as `bufctl -v` shows it.

    All memory is searched for pointers to the representatives, so their number is limited.
    """
    if len(groups) > MOST_DETAILS:
        notes.append(f"details of the first {MOST_DETAILS} of {len(groups)} groups; `whatis` has those of any block")
    yield DETAILS.table(list(_looks(heap, groups[:MOST_DETAILS])))
    recorded = [(group, group.record) for group in groups[:MOST_DETAILS] if group.record is not None]
    tables = audit(heap.target, callers, *(record for _group, record in recorded))
    yield from tables_of_records([(group.cache, group.count, group.size) for group, _record in recorded], tables)


def _looks(heap: ProcessHeap, groups: list[LeakGroup]) -> Iterator[tuple[Value, ...]]:
    from dmods.heap.content import describe_content
    from dmods.heap.locate import address_finder

    places = address_finder(heap.target)
    blocks = [block for group in groups if (block := heap.block_at(group.first)) is not None]
    pointers = heap.index.pointers([(block.address, block.end) for block in blocks], _MOST_POINTERS)
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


def _figures(heap: ProcessHeap, leaks: Leaks) -> Table:
    """Return the figures of the run, as mdb's ::findleaks -v prints them."""
    row: tuple[Value, ...] = (
        sum(row[1] + row[3] for row in heap.marks.engine.sizes()),
        sum(one.counts()[0] for one in heap.heaps),
        sum(one.counts()[1] for one in heap.heaps),
        heap.bytes,
        leaks.root_bytes,
        leaks.root_candidates,
        leaks.reached,
        leaks.direct_count + leaks.indirect_count,
        round(leaks.seconds, 3),
        round(leaks.cpu_seconds, 3),
    )
    return _FIGURES.table([row], style="record")


COMMAND = Command(
    name="findleaks",
    summary="blocks that nothing points to any more, and what they keep alive",
    description=(
        "A block is live if a pointer leads to it: from a register, a stack (from SP up), thread-local memory, the\n"
        "data of a module, any other memory that is not malloc's, or another live block. Every other block is\n"
        "leaked. Marking is conservative. Any word at a multiple of its size that holds an address within a block\n"
        "counts as a pointer (with --unaligned: a word at any byte; with --tagged: also one below a tag).\n\n"
        "No other leaked block points to a direct leak. All other leaked blocks are indirect leaks. Each is\n"
        "counted with the direct leak that leads to it. In a cycle, the block with the lowest address is the\n"
        "direct leak.\n\n"
        "TYPE is a C++ class by its vtable, or the shape of the first words (`types`). With debug information, a\n"
        "leaked block has the type of live objects that look alike (`typegraph`). In a heap of more than 131,072\n"
        "blocks, a sample of each group tells the type of the group; `types` looks at every block.\n\n"
        "Exit status 4 means that no verdict is possible: dmods finds no heap that it can walk, or the dump lacks\n"
        "the stacks or most of the heap. Results are kept until the process moves.\n\n"
        "If allocations were recorded (`dmods run -- PROG`), each line adds up the leaks of one stack. The oldest\n"
        "leak stands for the others. BUFCTL is its record: see `bufctl_audit`. VMEM_SEG is the record of a block\n"
        "with a mapping of its own. dmods cannot walk some allocators (other releases of tcmalloc and mimalloc).\n"
        "It knows their blocks from the records, if every block was recorded (no samples)."
    ),
    run=run,
    tables=(
        *GROUPS,
        DETAILS,
        replace(HEAD, when="with -d, where allocations were recorded"),
        INDIRECTS,
        DOUBTFUL,
        _FIGURES,
    ),
    totals=TOTALS,
    verdict=True,
    arguments=(
        Argument(
            "-d",
            "--details",
            action="store_true",
            help="show what each representative looks like, who points to it, and its allocation record",
        ),
        Argument("-f", "--force", action="store_true", help="do not use the results of the last run"),
        Argument("-i", "--indirect", action="store_true", help="list the indirectly leaked blocks too"),
        Argument(
            "--doubtful", action="store_true", help="list the blocks that may have leaked too: a note counts them"
        ),
        Argument("-v", "--verbose", action="store_true", help="show the figures of the run"),
        Argument(
            "--unaligned",
            action="store_true",
            help="a pointer may begin at any byte, as in packed structures: leaks may be hidden",
        ),
        Argument(
            "--tagged",
            action="store_true",
            help="a pointer may have a tag in its upper 16 bits, as in lists without locks: leaks may be hidden",
        ),
        Argument(
            "--stale-links",
            action="store_true",
            help="do not follow the old link of a free list in a block of tcmalloc, mimalloc or pymalloc that is zero "
            "otherwise: blocks in use may be reported",
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
