"""Build the types of blocks from debug information, and say how many blocks have one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from dmods.command import Argument, Command, positive
from dmods.graph.owners.heap_owners import Kept, Owners, find_owners
from dmods.graph.types.descriptions import is_exception_pool
from dmods.graph.types.type_row import NOTHING, Amount
from dmods.graph.types.typed_rows import typed_blocks
from dmods.graph.types.typegraph import Conflict, TypeGraph, debug_problems, find_typegraph
from dmods.heap.process_heap import find_heap
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

NO_DEBUG_INFORMATION = (
    "no module has debug information that can be read, so types are known by vtables only: install the -dbgsym "
    "packages, or set the folder with `--debug-dir`"
)
_TOP = 10
_LOOKED_AT = 512  # blocks in the search for the unknown block that leads to most
_RULE = "-" * 72
EVIDENCE = (
    Column("evidence"),
    Column("count", "count", width=8),
    Column("bytes", "bytes", width=12),
    Column("percent", "percent", title="%HEAP"),
)
CONFLICTS = (
    Column("address", "address", width=16),
    Column("kept", title="IS"),
    Column("kept_source", title="SAYS"),
    Column("other", title="OR"),
    Column("other_source", title="SAYS"),
    Column("disputed", hidden=True),
)
UNKNOWN = (
    Column("address", "address", width=16),
    Column("size", "bytes"),
    Column("count", "count", title="KEEPS"),
    Column("bytes", "bytes", title="KEPT BYTES"),
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return how many blocks have a type, by evidence; the conflicts; and the unknown blocks that lead to most."""
    heap = find_heap(target)
    report = Report(notes=list(heap.notes))
    graph = find_typegraph(target)
    if graph is None:
        report.notes += [*debug_problems(target), NO_DEBUG_INFORMATION]
    blocks = typed_blocks(target)
    report.notes.extend(blocks.notes)
    sums = dict(blocks.by_evidence())
    total = sum(sums.values(), NOTHING)
    unknown = sums.pop("none", NOTHING)
    order = sorted(sums, key=lambda evidence: (-sums[evidence].bytes, evidence))
    rows: list[tuple[Value, ...]] = [(evidence, *_cells(sums[evidence], total)) for evidence in order]
    rows.append(("not known", *_cells(unknown, total)))
    known = Amount(total.count - unknown.count, total.bytes - unknown.bytes)
    by_count, by_bytes = _share(known.count, total.count), _share(known.bytes, total.bytes)
    footer = [_RULE, f"A type is known for {by_count:.1f} % of the blocks, {by_bytes:.1f} % of the bytes"]
    report.tables.append(Table("evidence", EVIDENCE, rows, footer=footer))
    count = graph.conflict_count if graph is not None else 0
    if graph is not None and graph.conflicts:
        shown = graph.conflicts[: args.top]
        title = f"{count} blocks of which two sources say different things"
        report.tables.append(Table("conflicts", CONFLICTS, [_conflict(graph, each) for each in shown], title=title))
    if graph is not None:
        found = list(_unknown(graph, find_owners(target), args.top))
        cells = [(kept.address, kept.size, kept.count, kept.bytes) for kept in found]
        title = "blocks without a type that keep most alive: `istype ADDR TYPE` names one"
        report.tables.append(Table("unknown", UNKNOWN, cells, title=title))
    report.totals = {
        "count": total.count,
        "bytes": total.bytes,
        "typed_count": known.count,
        "typed_bytes": known.bytes,
        "conflicts": count,
    }
    return report


def _share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _cells(amount: Amount, total: Amount) -> tuple[Value, ...]:
    return amount.count, amount.bytes, _share(amount.bytes, total.bytes)


def _conflict(graph: TypeGraph, each: Conflict) -> tuple[Value, ...]:
    kept, other = each.kept, each.other
    disputed = kept.rank == other.rank
    return each.address, kept.type, graph.source(kept), other.type, graph.source(other), disputed


def _unknown(graph: TypeGraph, owners: Owners, top: int) -> Iterator[Kept]:
    """Yield the blocks without a type that keep most alive, and that no other such block keeps alive."""
    open_ = owners.largest(("live", 0), top)
    looked = found = 0
    while open_ and looked < _LOOKED_AT and found < top:
        open_.sort(key=lambda kept: (kept.bytes, -kept.address))
        kept = open_.pop()
        looked += 1
        block = graph.heap.block_at(kept.address)
        known = block is None or graph.name(block) is not None or is_exception_pool(graph.heap, block)
        if not known:
            found += 1
            yield kept
        elif kept.count > 1:
            open_.extend(owners.largest(("below", kept.address), top))


COMMAND = Command(
    name="typegraph",
    summary="the types of blocks from debug information: how many are known, and what is doubtful",
    description=(
        "Types spread from variables (global, thread-local, of frames) through typed pointers to blocks, and from\n"
        "these to others, as mdb's ::typegraph did. A block gets a type only where its size agrees. The containers\n"
        "of the C++ library are followed: their counts and links must agree, too. What is weaker waits for what is\n"
        "stronger: arrays, pointers in unions, the variables of frames, the only struct that has such a member.\n"
        "Where structs begin alike, the member that tells them apart is learned from objects whose types are known\n"
        "otherwise. An object may come behind a header or behind another object. At last come texts behind a short\n"
        "header, which is how many programs keep strings: they fill their block up to the 0 at their end. They are\n"
        "char[], or the struct whose count is the length of the text. No typed pointer leads to a leaked block: it\n"
        "has the type of live objects of its size that have the same in each of their words, if its pointers prove\n"
        "that and no other struct explains it as well.\n\n"
        "Where two good sources disagree the block has no type, and both are listed. The unknown blocks are those\n"
        "that keep most alive: `istype ADDR TYPE` names one, and what it leads to gets types, too."
    ),
    run=run,
    arguments=(Argument("--top", type=positive, default=_TOP, metavar="N", help=f"N lines in each list ({_TOP})"),),
    examples=(("typegraph", "how many blocks have a type, and by which evidence"),),
)
