"""Sum the mappings of the process by kind."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from dmods.base.ranges import Ranges
from dmods.base.sizes import human_size
from dmods.command import Argument, Command
from dmods.commands._lost_mappings import LOST_TABLES, lost_notes, lost_tables
from dmods.commands._memory import USES, uses_table
from dmods.commands._records import stack_table, stack_values
from dmods.heap.ledger import LEDGER, find_ledger
from dmods.heap.lost_mappings import find_lost_mappings
from dmods.heap.mapping_content import LARGE, WORTH, large_mappings
from dmods.heap.mapping_kinds import KINDS, classify_mappings
from dmods.heap.verdict import judge
from dmods.process.shapes import stack_columns
from dmods.records.callers import Callers
from dmods.records.mapped import makers, recorded_maps
from dmods.records.sources import allocation_records
from dmods.report import Column, Report, Schema, Table, Value
from dmods.target import AddressRange, Target

SUMMARY = Schema(
    "kinds",
    "the mappings of a kind",
    (
        Column("kind", width=12),
        Column("count", "count", width=8),
        Column("bytes", "bytes", width=16),
        Column("dumped", "bytes", width=16, about="the part that the dump has"),
    ),
)
_EACH = (
    Column("start", "address", width=16),
    Column("end", "address", width=16),
    Column("bytes", "bytes", width=14),
    Column("dumped", "bytes", width=14, about="the part that the dump has"),
    Column("flags", width=5),
    Column("kind", width=12),
    Column("offset", "address", null="the mapping is anonymous"),
    Column("path", null="the mapping is anonymous"),
)

CONTENTS = Schema(
    "contents",
    "a large anonymous mapping that belongs to no allocator and no stack",
    (
        Column("start", "address", width=16),
        Column("end", "address", width=16),
        Column("bytes", "bytes", width=14),
        Column("used", "percent", title="USED", null="it is not known"),
        Column("maker", title="BY", null="nobody recorded it", about="the call and its caller"),
        Column("content"),
    ),
    when="with --contents",
)

_MAKER = (
    Column(
        "call",
        title="BY",
        null="nobody recorded it",
        when="where --audit audit,maps recorded it",
        about="`auditor` for the auditor's own mappings",
    ),
    Column("call_bytes", "bytes", hidden=True, null="nobody recorded it", when="where --audit audit,maps recorded it"),
    Column("calls", "count", hidden=True, null="nobody recorded it", when="where --audit audit,maps recorded it"),
    Column("caller", null="nobody recorded it", when="where --audit audit,maps recorded it"),
    *stack_columns(null="nobody recorded who made it", when="where --audit audit,maps recorded it"),
)
#: The path, which may be long, stands behind the maker.
EACH = Schema("mappings", "a mapping", (*_EACH[:-1], *_MAKER[:-2], _EACH[-1], *_MAKER[-2:]), when="with -v")
_AUDITOR = "auditor"
_MOST_STACKS = 8  # makers of one mapping that are listed
_INDENT = 9


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the mappings by kind, or one by one."""
    ledger = find_ledger(target)  # it needs memory of its own for many mappings, so it comes first
    found = classify_mappings(target)
    by_kind = _by_kind(found)
    total = sum(size for _kind, _count, size, _dumped in by_kind)
    dumped = sum(there for _kind, _count, _size, there in by_kind)
    summary = SUMMARY.table(
        by_kind,
        footer=[f"{'Total':<12} {len(found):8} {total:16} {dumped:16}"] if found else [],
    )
    report = Report([summary], totals={"count": len(found), "bytes": total, "dumped": dumped})
    report.totals["memory"] = ledger.values()
    if args.verbose:
        recorded = recorded_maps(target)
        each = _with_makers(target, found) if recorded is not None else _each(found)
        report.tables = [*each, summary]
        report.notes.extend(recorded.recording.notes if recorded is not None else ())
    if args.contents:
        report.tables.append(_contents(target))
    report.tables.append(uses_table(ledger))
    if args.leaked:
        _add_leaked(target, report)
    return report


def _add_leaked(target: Target, report: Report) -> None:
    """Put the mappings that nothing points to first."""
    lost = find_lost_mappings(target)
    report.tables = [*lost_tables(target, lost), *report.tables]
    report.notes = list(dict.fromkeys([*report.notes, *lost_notes(target, lost)]))
    report.totals["leaked_count"], report.totals["leaked_bytes"] = len(lost.lost), lost.bytes
    report.totals["doubtful_count"] = len(lost.doubtful)
    judge(report, lost.verdict)


def _contents(target: Target) -> Table:
    """Return what the large anonymous mappings hold, and who made them."""
    callers = Callers(target)
    rows = []
    least = LARGE
    found = large_mappings(target, least)
    if not found:
        least = WORTH
        found = large_mappings(target, least)
    for each in found:
        made = makers(target, each.mapping)
        maker = f"{made[0].call} in {callers.caller(made[0].stack).text}" if made else None
        used = 100 * each.used if each.used is not None else None
        rows.append((each.mapping.start, each.mapping.end, each.mapping.size, used, maker, each.phrase))
    title = f"Anonymous mappings of {human_size(least)} or more that belong to no allocator and no stack"
    return CONTENTS.table(rows, title=title if rows else f"No {title[0].lower()}{title[1:]}")


def _each(found: Iterable[tuple[AddressRange, str]]) -> list[Table]:
    return [EACH.table((_row(mapping, kind) for mapping, kind in found), _EACH)]


def _with_makers(target: Target, found: Iterable[tuple[AddressRange, str]]) -> list[Table]:
    """Return the mappings with who made them, and below them the stacks."""
    callers, own = Callers(target), Ranges(allocation_records(target).own)
    rows: list[tuple[Value, ...]] = []
    stacks: list[Table] = []
    for mapping, kind in found:
        made = makers(target, mapping)
        cells: tuple[Value, ...] = (None,) * len(_MAKER)
        if made:
            caller = callers.caller(made[0].stack).text
            cells = (made[0].call, made[0].bytes, len(made), caller, *stack_values(callers, made[0].stack))
        elif mapping.path is None and mapping.start in own:
            cells = (_AUDITOR, *cells[1:])
        rows.append((*_row(mapping, kind), *cells))
        for maker in made[:_MOST_STACKS]:
            title = f"{mapping.start:x}-{mapping.end:x}: {maker.bytes} bytes by {maker.call}"
            stacks.append(stack_table(callers, maker.stack, f"stack {len(stacks) + 1}", title=title, indent=_INDENT))
    return [
        EACH.table(map(_in_order, rows)),
        *stacks,
    ]


def _in_order(row: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the cells with the path, which may be long, behind the maker."""
    path = len(_EACH) - 1
    return (*row[:path], *row[path + 1 : -2], row[path], *row[-2:])


def _by_kind(found: Iterable[tuple[AddressRange, str]]) -> list[tuple[str, int, int, int]]:
    sums = {kind: [0, 0, 0] for kind in KINDS}
    for mapping, kind in found:
        its = sums[kind]
        its[0] += 1
        its[1] += mapping.size
        its[2] += mapping.dumped
    return [(kind, count, size, dumped) for kind, (count, size, dumped) in sums.items() if count]


def _row(mapping: AddressRange, kind: str) -> tuple[Value, ...]:
    offset = mapping.offset if mapping.path is not None else None
    return mapping.start, mapping.end, mapping.size, mapping.dumped, mapping.flags, kind, offset, mapping.path


TOTALS = (
    Column("count", "count", about="mappings"),
    Column("bytes", "bytes"),
    Column("dumped", "bytes"),
    Column("memory", "object", fields=LEDGER),
    Column("leaked_count", "count", when="with --leaked"),
    Column("leaked_bytes", "bytes", when="with --leaked"),
    Column("doubtful_count", "count", when="with --leaked"),
)


COMMAND = Command(
    name="maps",
    summary="the mappings of the process: count, bytes and bytes in the dump, by kind",
    description=(
        "Kinds: heap and arena (the allocator's), stack, thread stack, file text, file data, anon (other anonymous\n"
        "memory), shared (shared memory without a file), vdso, and reserved: address space that cannot be\n"
        "accessed, such as guard pages and the unused end of an arena. unknown: the core has neither a list of\n"
        "mapped files nor the bytes of this memory. It belongs to files, or the process never touched it.\n"
        "BYTES is address space. DUMPED bytes of it are in the core itself; more may be readable from the files.\n"
        "The last table has the memory by use, with the same numbers as triage, suspects, owners, malloc_stats and\n"
        "growth. NEVER TOUCHED is mapped and costs nothing: pages that a live process never used, or that are all\n"
        "zeros or left out in a dump.\n"
        "--contents samples the pages of large anonymous mappings: zeros, text, pointers, numbers, one byte repeated,\n"
        "compressed or random data. USED is the share of pages that hold anything but zeros.\n"
        "--leaked lists mappings that nothing points to any more, anonymous or of files: the program mapped them\n"
        "itself, and lost their addresses. A pointer to any byte of a mapping holds it, and so does one to its end.\n"
        "Memory of allocators, runtimes, stacks and modules, code made at run time and shared memory are not listed.\n"
        "TOUCHED counts the bytes that the process has used. For mappings of files, a core does not show this.\n"
        "Adjacent mappings count as one, unless the auditor recorded them.\n"
        "After `dmods run --audit audit,maps` the list also says who made each mapping (BY, CALLER), with the stacks."
    ),
    run=run,
    tables=(*LOST_TABLES, EACH, SUMMARY, CONTENTS, USES),
    totals=TOTALS,
    verdict=True,
    arguments=(
        Argument("-v", "--verbose", action="store_true", help="list each mapping too"),
        Argument("--leaked", action="store_true", help="list the mappings that nothing points to"),
        Argument("--contents", action="store_true", help="say what large anonymous mappings hold"),
    ),
    examples=(
        ("maps", "how much memory there is of each kind"),
        ("maps --contents", "what the memory is that no allocator owns"),
        ("maps --leaked", "which mappings the program has lost"),
        ("maps -v", "each mapping: where, how large, what for, which file"),
    ),
)
