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
from dmods.heap.heap import find_heap
from dmods.report import Column, Report, Schema, Value
from dmods.target import Target

NO_DEBUG_INFORMATION = (
    "no module has debug information that can be read, so types are known by vtables only: install the -dbgsym "
    "packages, or name their files with `--sysroot DIR` or `--debuginfod` in the shell"
)
_TOP = 10
_LOOKED_AT = 512  # blocks in the search for the unknown block that leads to most
_RULE = "-" * 72
EVIDENCE = Schema(
    "evidence",
    "a kind of evidence for types, and the blocks that have a type by it",
    (
        Column("evidence"),
        Column("count", "count", width=8),
        Column("bytes", "bytes", width=12),
        Column("percent", "percent", title="%HEAP"),
    ),
)
CONFLICTS = Schema(
    "conflicts",
    "a block with two sources that disagree about its type",
    (
        Column("address", "address", width=16),
        Column("kept", title="IS"),
        Column("kept_source", title="SAYS"),
        Column("other", title="OR"),
        Column("other_source", title="SAYS"),
        Column("disputed", "flag", hidden=True, about="whether both are as good"),
    ),
    when="where there are some",
)
UNKNOWN = Schema(
    "unknown",
    "a block without a type that keeps much alive",
    (
        Column("address", "address", width=16),
        Column("size", "bytes"),
        Column("count", "count", title="KEEPS", about="what it keeps alive, itself included"),
        Column("bytes", "bytes", title="KEPT BYTES", about="what it keeps alive, itself included"),
    ),
    when="where debug information is there",
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
    report.tables.append(EVIDENCE.table(rows, footer=footer))
    count = graph.conflict_count if graph is not None else 0
    if graph is not None and graph.conflicts:
        shown = graph.conflicts[: args.top]
        title = f"{count} blocks have two sources that disagree"
        report.tables.append(CONFLICTS.table([_conflict(graph, each) for each in shown], title=title))
    if graph is not None:
        found = list(_unknown(graph, find_owners(target), args.top))
        cells = [(kept.address, kept.size, kept.count, kept.bytes) for kept in found]
        title = "blocks without a type that keep most alive: `istype ADDR TYPE` names one"
        report.tables.append(UNKNOWN.table(cells, title=title))
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


TOTALS = (
    Column("count", "count"),
    Column("bytes", "bytes"),
    Column("typed_count", "count"),
    Column("typed_bytes", "bytes"),
    Column("conflicts", "count"),
)


COMMAND = Command(
    name="typegraph",
    summary="the types of blocks from debug information: how many are known, and what is doubtful",
    description=(
        "Types spread from variables (global, thread-local, of frames) through typed pointers to blocks, and from\n"
        "these to others, as mdb's ::typegraph did. A block gets a type only where its size agrees. The containers of\n"
        "the C++ library are followed: their counts and links must agree, too. Weak evidence is used only after\n"
        "stronger evidence. Weak are arrays, pointers in unions, the variables of frames, and the only struct that\n"
        "has such a member. Some structs have the same first members. Then the member that distinguishes them is\n"
        "learned from objects whose types are already known. An object may lie behind a header or behind another\n"
        "object.\n\n"
        "Many programs keep a string as a text behind a short header. Such blocks come last: the text must fill the\n"
        "block up to its final 0. The type is char[], or the struct whose count is the length of the text.\n\n"
        "No typed pointer leads to a leaked block. It has the type of live objects of its size whose words are all of\n"
        "the same kind, if its pointers prove the type and no other struct fits as well.\n\n"
        "If two good sources disagree, the block has no type, and both are listed. The list of unknown blocks has\n"
        "the blocks that keep most alive: `istype ADDR TYPE` names one, and blocks that it leads to get types, too."
    ),
    run=run,
    tables=(EVIDENCE, CONFLICTS, UNKNOWN),
    totals=TOTALS,
    arguments=(Argument("--top", type=positive, default=_TOP, metavar="N", help=f"N lines in each list ({_TOP})"),),
    examples=(("typegraph", "how many blocks have a type, and by which evidence"),),
)
