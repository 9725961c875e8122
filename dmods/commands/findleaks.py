"""Blocks that nothing points to any more."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from dmods import heap as heaps
from dmods import leakgroups, signalstacks
from dmods.blocks import arena_name
from dmods.callers import UNKNOWN, Callers
from dmods.command import Argument, Command, positive
from dmods.content import look
from dmods.errors import ASK_WHATIS, UsageError
from dmods.heap import DIRECT, INDIRECT, Leaks, ProcessHeap
from dmods.jemalloc import heap as jemalloc
from dmods.kept import forget
from dmods.leakgroups import LeakGroup
from dmods.records import HOW, Record
from dmods.recordviews import audit
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

_MOST_DETAILS = 32
_MOST_POINTERS = 4  # to a representative
RULE = "-" * 72

# mdb's layout: see the libumem tutorial. What more is known stands to its right.
_KEEPS = (
    Column("keeps", width=0, title="KEEPS ALIVE"),
    Column("bytes", "bytes", hidden=True),
    Column("kept_count", "count", hidden=True),
    Column("kept_bytes", "bytes", hidden=True),
)
_LEAKED = Column("leaked", "count", width=7)
_BUFFER = Column("buffer", "address", width=17)
GROUPS = (Column("cache", width=16), _LEAKED, _BUFFER, Column("caller", width=6), *_KEEPS)
RECORDED = (
    Column("cache", width=16),
    _LEAKED,
    Column("bufctl", "address", width=17),
    Column("caller", width=6),
    *_KEEPS,
    replace(_BUFFER, hidden=True),
    Column("requested", "bytes", hidden=True),
)
OVERSIZED = (
    Column("size", "bytes", width=16, title="BYTES"),
    _LEAKED,
    Column("vmem_seg", "address", width=17),
    Column("caller", width=6),
    *_KEEPS,
    *RECORDED[-2:],
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
    if args.force:
        forget(target)
    heap = heaps.of(target)
    callers = Callers(target)
    report = Report(notes=list(heap.notes))
    if not heap.found:
        report.notes.insert(0, heaps.NO_HEAP)
    leaks = heap.leaks()
    report.notes.extend(heap.roots.notes)
    groups = leakgroups.groups(heap, callers)
    report.notes.extend(heap.records.notes)
    report.notes.extend(signalstacks.notes(target, leaks))
    if args.what is not None:
        groups = _only(heap, callers, groups, args.what, report)
    shown = groups if args.top is None else _largest(groups, args.top)
    if len(shown) < len(groups):
        report.notes.append(f"{len(groups) - len(shown)} smaller groups are not shown (--top)")
    if heap.records.sampled and any(group.record is None for group in shown):
        report.notes.append(f"only samples were recorded: of the other leaks the caller is not known ({UNKNOWN})")
    _add_groups(report, shown, leaks)
    if args.details:
        report.tables.extend(_details(heap, callers, shown, report.notes))
    if args.indirect:
        report.tables.append(Table("indirect", INDIRECTS, _indirects(heap), title="Indirectly leaked"))
    report.totals = _totals(leaks)
    if args.verbose:
        report.tables.append(_figures(heap, leaks))
    if args.fail_on_leak and leaks.direct_count:
        report.status = 3
    return report


def _largest(groups: Sequence[LeakGroup], most: int) -> list[LeakGroup]:
    """Those that hold most, in the order in which they were."""
    chosen = sorted(groups, key=lambda group: -(group.bytes + group.kept_bytes))[:most]
    return sorted(chosen, key=lambda group: group.order)


def _only(heap: ProcessHeap, callers: Callers, groups: list[LeakGroup], text: str, report: Report) -> list[LeakGroup]:
    """The leak that the address points into, or whose record it is; else those with the address, or the function there,
    in their stack."""
    address = heap.target.evaluate(text)
    entry = heap.records.at(address)
    block = heap.block_at(entry.address if isinstance(entry, Record) else address)
    if block is not None:
        if block.state not in (DIRECT, INDIRECT):
            raise UsageError(f"the block at {block.address:#x} is not leaked", ASK_WHATIS)
        return [leakgroups.of_block(heap, callers, block)]
    if not heap.records:
        report.notes.append(
            f"no leak has {text} in its stack: there are no allocation records (CALLER {UNKNOWN}); "
            f"an address within a block works. {HOW[0].upper()}{HOW[1:]}"
        )
        return []
    found = leakgroups.through(heap, callers, groups, address)
    if not found:
        report.notes.append(f"no leak has {text} in its stack")
    return found


def _add_groups(report: Report, groups: list[LeakGroup], leaks: Leaks) -> None:
    recorded = [group for group in groups if not group.single and group.record is not None]
    unknown = [group for group in groups if not group.single and group.record is None]
    large = [group for group in groups if group.single]
    tables: list[Table] = []
    recorded_columns, plain, oversized = (
        columns if any(group.kept_count for group in groups) else _without_keeps(columns)
        for columns in (RECORDED, GROUPS, OVERSIZED)
    )
    if recorded:
        rows = [(group.cache, *_row(group), group.first, _requested(group)) for group in recorded]
        tables.append(Table("leaks", recorded_columns, rows))
    if unknown or not (recorded or large):
        rows = [(group.cache, *_row(group)) for group in unknown]
        tables.append(Table("unrecorded" if recorded else "leaks", plain, rows))
    if large:
        rows = [(group.size, *_row(group), group.first, _requested(group)) for group in large]
        tables.append(Table("oversized", oversized, rows))
    tables[-1].footer = _footer(leaks)
    report.tables.extend(tables)


def _without_keeps(columns: Sequence[Column]) -> Sequence[Column]:
    """As the libumem tutorial has it: nothing keeps anything alive."""
    return [replace(column, hidden=column.hidden or column.name == "keeps") for column in columns]


def _row(group: LeakGroup) -> tuple[Value, ...]:
    """From "leaked" on."""
    place = group.record.bufctl if group.record is not None else group.first
    keeps = f"{_count(group.kept_count)}, {group.kept_bytes} bytes" if group.kept_count else ""
    return group.count, place, group.caller.text, keeps, group.bytes, group.kept_count, group.kept_bytes


def _requested(group: LeakGroup) -> Optional[int]:
    """Bytes that were asked for, of the representative."""
    return group.record.requested if group.record is not None else None


def _footer(leaks: Leaks) -> list[str]:
    lines = [RULE, f"{'Total':>16} {leaks.direct_count:7} {_noun(leaks.direct_count)}, {leaks.direct_bytes} bytes"]
    if leaks.indirect_count:
        kept = f"{leaks.indirect_count:7} {_noun(leaks.indirect_count)}, {leaks.indirect_bytes} bytes"
        lines.append(f"{'Kept alive':>16} {kept} (indirect: -i lists them)")
    return lines


def _noun(count: int) -> str:
    return "buffer" if count == 1 else "buffers"


def _count(count: int) -> str:
    return f"{count} {_noun(count)}"


def _details(heap: ProcessHeap, callers: Callers, groups: list[LeakGroup], notes: list[str]) -> Iterator[Table]:
    """A row for each representative, and its record as `bufctl -v` shows it. Who points to one is searched for in all
    memory, so there is a limit."""
    if len(groups) > _MOST_DETAILS:
        notes.append(f"details of the first {_MOST_DETAILS} of {len(groups)} groups; `whatis` has those of any block")
    yield Table("details", DETAILS, list(_looks(heap, groups[:_MOST_DETAILS])))
    for number, group in enumerate(groups[:_MOST_DETAILS], 1):
        if group.record is not None:
            tables = list(audit(heap.target, callers, group.record, f" {number}"))
            each = f"{_count(group.count)}, {group.size} bytes each, {group.bytes} bytes total"
            tables[0].title = f"{group.cache} leak: {each}"
            yield from tables


def _looks(heap: ProcessHeap, groups: list[LeakGroup]) -> Iterator[tuple[Value, ...]]:
    from dmods.places import of as places_of

    places = places_of(heap.target)
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
            look(heap, block).summary() or None,
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
    """What mdb's ::findleaks -v prints of its run."""
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
        "Conservative mark from registers, stacks from SP up, the data of every module, TLS and all other memory\n"
        "that is not malloc's; a pointer anywhere into a block keeps it alive. A direct leak is one that no other\n"
        "leaked block leads to (of a cycle: the lowest address); what leaks with it is indirect, and is counted\n"
        "with one direct leak. Results are kept until the process moves.\n\n"
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
        Argument("-f", "--force", action="store_true", help="compute anew"),
        Argument("-i", "--indirect", action="store_true", help="list the indirectly leaked blocks too"),
        Argument("-v", "--verbose", action="store_true", help="show the figures of the run"),
        Argument("--top", type=positive, metavar="N", help="only the N groups that hold most memory"),
        Argument("--fail-on-leak", action="store_true", help="exit status 3 when something leaked"),
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
