"""Find the slab objects that nothing points to any more."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.dataclass import replace
from dmods.base.progress import Progress
from dmods.command import KERNEL, Argument, Command, positive
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
from dmods.commands._records import CALLER_ARGUMENTS, HEAD, LINES, stack_values
from dmods.process.shapes import STACK_COLUMNS
from dmods.report import Column, Report, Schema, Table, Value
from drgnext.commands._slabs import address_asked, audit, cache_name, callers_asked, objects_of
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.callers import KernelCallers
from drgnext.kernel.slabs.leaks import EVIDENCE, SlabLeaks, kernel_leaks
from drgnext.kernel.slabs.objects import LEAKED, OWN, PHYSICAL, SET_ASIDE, STACK, UNALIGNED, UNSURE
from drgnext.kernel.slabs.tracks import HOW_TO_TRACK, SlabRecord, SlabUser

#: Slab objects have no types.
_GROUPS = [replace(one, columns=[each for each in one.columns if each.name != "type"]) for one in GROUPS[:-1]]
_BATCH = 1 << 16

_ORPHANS = Schema(
    "by_design",
    "an object that the kernel dropped on purpose: no leak",
    (
        Column("cache", width=16),
        Column("buffer", "address", width=17),
        Column("bytes", "bytes"),
        Column("what"),
        Column("kept_count", "count", hidden=True, about="what it keeps alive"),
        Column("kept_bytes", "bytes", hidden=True, about="what it keeps alive"),
        Column("why", hidden=True),
    ),
    when="where there are some",
)
_DOUBTFUL = Schema(
    "doubtful",
    "objects of one cache and stack that only weak evidence holds",
    (
        Column("cache", width=16),
        Column("held", "count", width=7, about="objects"),
        Column("buffer", "address", width=17, about="one of them"),
        Column("bytes", "bytes", width=9),
        Column("caller", width=6),
        Column("evidence", title="HELD BY"),
        *STACK_COLUMNS,
    ),
    when="with --doubtful",
)
_INDIRECTS = Schema(
    "indirect",
    "an object that only leaked objects lead to",
    (Column("buffer", "address", width=16), Column("size", "bytes"), Column("cache")),
    when="with -i",
)
_EVIDENCE = Schema(
    "evidence",
    "a class of evidence, and the objects that it holds",
    (
        Column("evidence", width=50, title="HELD BY"),
        Column("objects", "count", width=10),
        Column("bytes", "bytes", width=12),
    ),
    when="with -v",
)
_FIGURES = Schema(
    "figures",
    "the figures of the search",
    (
        Column("objects", "count", title="slab objects"),
        Column("allocated", "count", title="allocated"),
        Column("large", "count", title="blocks of kmalloc with their own pages"),
        Column("own", "count", title="the allocator's own (sheaves)"),
        Column("bytes_read", "bytes", title="bytes of memory read"),
        Column("leaked", "count", title="objects leaked"),
        Column("orphans", "count", title="dropped on purpose"),
        Column("wall_seconds", "seconds", title="elapsed wall seconds"),
        Column("cpu_seconds", "seconds", title="CPU seconds"),
    ),
    when="with -v",
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the leaks, grouped by cache and stack."""
    slabs = objects_of(kernel)
    with Progress("searching for pointers") as bar:
        total = sum(one.pages for one in slabs.usage()) << slabs.pages.layout["page_bits"]
        leaks = kernel_leaks(kernel, lambda done: bar.update(done, max(done, total)), args.force)
    callers = callers_asked(kernel, args, lines=args.lines or args.details)
    report = Report(notes=[*slabs.notes, *leaks.notes, *leaks.large_notes], verdict=leaks.verdict)
    groups = leaks.groups
    sums: Sums = leaks
    if args.what is not None:
        address = address_asked(kernel, args.what)
        groups = [group for group in groups if callers.passes(group.stack, address)]
        if not groups:
            report.notes.append(f"no leak has {args.what} in its stack")
        sums = sums_of(groups)
    whole = leaks if args.what is not None else None
    shown = groups[: args.top]
    report.notes += smaller_groups([group.count * group.size + group.kept_bytes for group in groups], len(shown))
    if not leaks.tracks.of_caches and any(not group.tracked for group in shown):
        report.notes.append(f"this kernel did not record who allocated slab objects: {HOW_TO_TRACK}")
    report.tables += _groups(callers, shown, leaks, args.lines)
    if sums.direct_count or leaks.verdict.possible:
        report.tables[-1].footer = footer(sums, whole)
    if leaks.orphans:
        report.tables.append(_orphans(leaks))
    if args.details:
        report.tables += _details(leaks, callers, shown, report.notes)
    if args.indirect:
        report.tables.append(_INDIRECTS.table(_indirects(leaks), title="Indirectly leaked"))
    if args.doubtful:
        report.tables.append(_doubtful(leaks, callers))
    report.notes += leaks.tracks.notes
    weak = leaks.evidence.get(PHYSICAL, (0, 0))
    if weak[0]:
        report.notes.append(
            f"{weak[0]} objects, {weak[1]} bytes, are held by their physical address only: a device may use them "
            "(--doubtful lists them)"
        )
    report.totals = {**totals(sums, whole), "by_design_count": len(leaks.orphans)}
    if args.verbose:
        report.tables += [_evidence(leaks), _figures(leaks)]
    set_status(report, args.fail_on_leak, sums.direct_count)
    return report


def _groups(callers: KernelCallers, groups: Sequence[SlabUser], leaks: SlabLeaks, lines: bool) -> Iterator[Table]:
    """Yield a table of leaks with records, and one of those without."""
    rows = [_row(callers, group, leaks, lines) for group in groups]
    tables = [table for _lost, table in tables_of_groups(rows, lines, typed=False)]
    yield from tables


def _row(callers: KernelCallers, group: SlabUser, leaks: SlabLeaks, lines: bool) -> LeakRow:
    frame = callers.caller_frame(group.stack)
    record = _record(leaks, group)
    bufctl = record.bufctl if record is not None else group.oldest
    return LeakRow(
        cache=cache_name(group.cache),
        size=group.size,
        count=group.count,
        kept_count=group.kept_count,
        kept_bytes=group.kept_bytes,
        first=group.oldest,
        record=bufctl if group.tracked else None,
        caller=callers.caller(group.stack).text,
        source=(callers.line(frame) or None) if lines and frame is not None else None,
        requested=record.requested if record is not None else None,
        stack=stack_values(callers, group.stack) if group.tracked else (None, None),
    )


def _orphans(leaks: SlabLeaks) -> Table:
    """Return the table of what the kernel dropped on purpose."""
    rows = [
        (cache_name(one.cache), one.address, one.size, one.what, one.kept_count, one.kept_bytes, one.why)
        for one in leaks.orphans
    ]
    return _ORPHANS.table(rows, title="Kept by nobody, by design (not counted as leaks)")


def _details(leaks: SlabLeaks, callers: KernelCallers, groups: Sequence[SlabUser], notes: list[str]) -> Iterator[Table]:
    """Yield the record of each representative, as `bufctl_audit` shows it."""
    recorded = [group for group in groups if group.tracked][:MOST_DETAILS]
    if len(recorded) < sum(group.tracked for group in groups):
        notes.append(f"details of the first {MOST_DETAILS} groups; `bufctl_audit` has those of any object")
    both = [(group, record) for group in recorded if (record := _record(leaks, group)) is not None]
    tables = audit(leaks.slabs, leaks.tracks, callers, *(record for _group, record in both))
    yield from tables_of_records(
        [(cache_name(group.cache), group.count, group.size) for group, _record in both], tables
    )


def _record(leaks: SlabLeaks, group: SlabUser) -> Optional[SlabRecord]:
    """Return the record of a group's oldest object."""
    found = leaks.slabs.object_at(group.oldest) if group.tracked else None
    return leaks.tracks.of(found, False) if found is not None else None


def _indirects(leaks: SlabLeaks) -> Iterator[tuple[Value, ...]]:
    start: Optional[int] = 0
    while start is not None:
        rows, start = leaks.slabs.engine.leaked(start, _BATCH)
        for address, size, cache, direct, _kept, _bytes in rows:
            if not direct:
                yield address, size, cache_name(leaks.slabs.cache(cache))


def _doubtful(leaks: SlabLeaks, callers: KernelCallers) -> Table:
    """Return what only weak evidence holds, by cache and stack."""
    rows: list[tuple[Value, ...]] = []
    for state in (STACK, UNALIGNED, PHYSICAL):
        users = leaks.tracks.users(leaks.slabs.engine.groups([state], True))
        for user in sorted(users, key=lambda one: -one.count * one.size):
            caller = callers.caller(user.stack).text
            sums = (cache_name(user.cache), user.count, user.oldest, user.count * user.size)
            rows.append((*sums, caller, EVIDENCE[state], *stack_values(callers, user.stack)))
    return _DOUBTFUL.table(rows, title="Held by weak evidence only")


def _evidence(leaks: SlabLeaks) -> Table:
    """Return how many objects each class of evidence holds."""
    rows = [(text, *leaks.evidence.get(state, (0, 0))) for state, text in EVIDENCE.items()]
    rows.append(("what the kernel dropped on purpose", *leaks.evidence.get(SET_ASIDE, (0, 0))))
    unsure = leaks.evidence.get(UNSURE, (0, 0))
    if unsure[0]:
        rows.append(("nothing in the dump, which lacks pages", *unsure))
    rows.append(("nothing", *leaks.evidence.get(LEAKED, (0, 0))))
    return _EVIDENCE.table(rows)


def _figures(leaks: SlabLeaks) -> Table:
    """Return the figures of the run."""
    odd = leaks.slabs.engine.odd()
    allocated = sum(count for state, (count, _bytes) in leaks.evidence.items() if state <= UNSURE)
    row: tuple[Value, ...] = (
        odd["objects"],
        allocated - leaks.large,
        leaks.large,
        leaks.evidence.get(OWN, (0, 0))[0],
        leaks.figures["read"],
        leaks.direct_count + leaks.indirect_count,
        len(leaks.orphans),
        round(leaks.seconds, 3),
        round(leaks.cpu_seconds, 3),
    )
    return _FIGURES.table([row], style="record")


COMMAND = Command(
    name="findleaks",
    summary="slab objects that nothing points to any more, and what they keep alive",
    description=(
        "An object is live if a pointer leads to it: from the kernel's image, per-CPU areas, stacks, vmalloc,\n"
        "struct pages, any other page of the kernel that is not slab, anonymous memory or page cache, or another\n"
        "live object. Every other object is leaked. Marking is conservative: any word that holds an address within\n"
        "an object counts as a pointer. Pages of kmalloc above two pages count as objects. Objects on free lists\n"
        "of all possible CPUs and in sheaves are free.\n\n"
        "No other leaked object points to a direct leak. All other leaked objects are indirect leaks. In a cycle,\n"
        "the object with the lowest address is the direct leak.\n\n"
        "Weak evidence also holds an object: a task's stack, a pointer 4 bytes past a multiple of 8, the object's\n"
        "physical address. --doubtful lists the objects that only weak evidence holds. A small number may equal a\n"
        "physical address by chance. So an address counts only beside the length of its buffer, as in a descriptor\n"
        "for a device, or in a list of such addresses. findleaks also reports an object in use if its only pointer is\n"
        "mixed with another value, cut to 32 bits, a physical address alone, or a physical address of its middle.\n\n"
        "With slub_debug=U on the kernel's command line, each line adds up the leaks of one stack. The oldest leak\n"
        "stands for the others. BUFCTL is its record: see `bufctl_audit`. Objects to which the kernel drops its\n"
        "pointers on purpose have a table of their own.\n\n"
        "Exit status 4 means that no verdict is possible: the dump lacks too many of the kernel's pages."
    ),
    run=run,
    tables=(
        *_GROUPS,
        _ORPHANS,
        replace(HEAD, when="with -d, where allocations were recorded"),
        _INDIRECTS,
        _DOUBTFUL,
        _EVIDENCE,
        _FIGURES,
    ),
    totals=(*TOTALS, Column("by_design_count", "count", about="objects that the kernel dropped on purpose")),
    verdict=True,
    arguments=(
        Argument("-d", "--details", action="store_true", help="show the allocation record of each representative"),
        Argument("-f", "--force", action="store_true", help="do not use the results of the last run"),
        Argument("-i", "--indirect", action="store_true", help="list the indirectly leaked objects too"),
        Argument("-v", "--verbose", action="store_true", help="show how many objects each class of evidence holds"),
        Argument("--doubtful", action="store_true", help="list what only weak evidence holds"),
        Argument("--top", type=positive, metavar="N", help="only the N biggest groups"),
        Argument("--fail-on-leak", action="store_true", help="exit with status 3 if anything leaked (for CI)"),
        *CALLER_ARGUMENTS,
        LINES,
        Argument("what", nargs="?", metavar="ADDR|FUNCTION", help="only the leaks with this in their stack"),
    ),
    requires=(KERNEL,),
    examples=(
        ("findleaks -v", "the leaks, and what holds the other objects"),
        ("findleaks -d --top 5", "the five biggest groups, with their stacks"),
    ),
)
