"""Blocks that nothing points to any more."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from dmods import heap as heaps
from dmods.blocks import arena_name
from dmods.command import Argument, Command
from dmods.content import look
from dmods.errors import UsageError
from dmods.heap import DIRECT, INDIRECT, Group, Leaks, ProcessHeap
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

_MOST_DETAILS = 32
RULE = "-" * 72
UNKNOWN = "?"  # the caller of a block without an allocation record

# mdb's layout: see the libumem tutorial. What more is known stands to its right.
GROUPS = (
    Column("cache", width=16),
    Column("leaked", "count", width=7),
    Column("buffer", "address", width=17),
    Column("caller", width=6),
    Column("keeps", width=0, title="KEEPS ALIVE"),
    Column("bytes", "bytes", hidden=True),
    Column("kept_count", "count", hidden=True),
    Column("kept_bytes", "bytes", hidden=True),
)
OVERSIZED = (
    Column("size", "bytes", width=16, title="BYTES"),
    GROUPS[1],
    Column("vmem_seg", "address", width=17),
    *GROUPS[3:],
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
    heap = heaps.of(target, refresh=args.force)
    report = Report(notes=list(heap.notes))
    if not heap.found:
        report.notes.insert(0, heaps.NO_HEAP)
    leaks = heap.leaks()
    report.notes.extend(heap.roots.notes)
    groups = leaks.groups
    if args.what is not None:
        groups = _only(heap, target.evaluate(args.what), args.what, report)
    groups = sorted(groups, key=lambda g: (-(g.count * g.size + g.kept_bytes), g.first))
    shown = groups if args.top is None else groups[: args.top]
    if len(shown) < len(groups):
        report.notes.append(f"{len(groups) - len(shown)} smaller groups are not shown (--top)")
    _add_groups(report, shown, leaks)
    if args.details:
        report.tables.append(Table("details", DETAILS, list(_details(heap, shown, report.notes))))
    if args.indirect:
        report.tables.append(Table("indirect", INDIRECTS, _indirects(heap), title="Indirectly leaked"))
    report.totals = _totals(leaks)
    if args.verbose:
        report.tables.append(_figures(heap, leaks))
    if args.fail_on_leak and leaks.direct_count:
        report.status = 3
    return report


def _only(heap: ProcessHeap, address: int, text: str, report: Report) -> list[Group]:
    """The leak that the address points into; by function only where there are allocation records."""
    block = heap.block_at(address)
    if block is None:
        report.notes.append(
            f"no leak has {text} in its stack: there are no allocation records (CALLER {UNKNOWN}); "
            "an address within a block works"
        )
        return []
    if block.state not in (DIRECT, INDIRECT):
        raise UsageError(f"the block at {block.address:#x} is not leaked", "`whatis` says what it is")
    return [Group(block.size, block.allocator, block.single, 1, block.address, block.kept_count, block.kept_bytes)]


def _add_groups(report: Report, groups: list[Group], leaks: Leaks) -> None:
    small = [group for group in groups if not group.single]
    large = [group for group in groups if group.single]
    footer = _footer(leaks)
    if small or not large:
        rows: list[tuple[Value, ...]] = [(group.cache, *_row(group)) for group in small]
        report.tables.append(Table("leaks", GROUPS, rows, footer=() if large else footer))
    if large:
        rows = [(group.size, *_row(group)) for group in large]
        report.tables.append(Table("oversized", OVERSIZED, rows, footer=footer))


def _row(group: Group) -> tuple[Value, ...]:
    keeps = f"{_count(group.kept_count)}, {group.kept_bytes} bytes" if group.kept_count else ""
    return group.count, group.first, UNKNOWN, keeps, group.count * group.size, group.kept_count, group.kept_bytes


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


def _details(heap: ProcessHeap, groups: list[Group], notes: list[str]) -> Iterator[tuple[Value, ...]]:
    """A row for each representative. Who points to one is searched for in all memory, so there is a limit."""
    from dmods.places import Places

    places = Places(heap)
    if len(groups) > _MOST_DETAILS:
        notes.append(f"details of the first {_MOST_DETAILS} of {len(groups)} groups; `whatis` has those of any block")
    for group in groups[:_MOST_DETAILS]:
        block = heap.block_at(group.first)
        if block is None:
            continue
        others = [at for at in heap.referrers(block, 4) if not block.address <= at < block.end]
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
        sum(report["chunks"] - report["free_chunks"] for report in heap.reports),
        len(heap.arenas),
        len(heap.caches.tcaches),
        sum(end - start for start, end, *_ in heap.layout.runs),
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
        "with one direct leak. Results are kept until the process moves."
    ),
    run=run,
    arguments=(
        Argument(
            "-d", "--details", action="store_true", help="show what each representative looks like and who points to it"
        ),
        Argument("-f", "--force", action="store_true", help="compute anew"),
        Argument("-i", "--indirect", action="store_true", help="list the indirectly leaked blocks too"),
        Argument("-v", "--verbose", action="store_true", help="show the figures of the run"),
        Argument("--top", type=int, metavar="N", help="only the N groups that hold most memory"),
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
    ),
)
