"""Count the blocks of each type, or of each shape where the type is not known."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.command import Argument, Command, positive
from dmods.errors import UsageError
from dmods.graph.owners.heap_owners import find_owners
from dmods.graph.types.type_name import CONFIDENCES
from dmods.graph.types.type_row import Amount, TypeRow
from dmods.graph.types.typed_rows import typed_blocks
from dmods.heap.heap import find_heap
from dmods.heap.no_heap import no_heap
from dmods.heap.verdict import judge, leak_verdict
from dmods.report import Column, Report, Schema, Value
from dmods.target import Target

_USUAL = 40  # rows that are shown without --top
_FEW = 2_000_000  # blocks: of a larger heap, what types keep alive is computed only with --retained
COLUMNS = Schema(
    "types",
    "a type, or a shape where no type is known",
    (
        Column("count", "count", width=8),
        Column("bytes", "bytes", width=12),
        Column("percent", "percent", title="%HEAP"),
        Column(
            "retained_bytes",
            "bytes",
            title="RETAINED",
            null="the row is of objects in a pool, or the heap is large and --retained is not given",
        ),
        Column("leaked_count", "count", title="LEAKED", about="the leaked part"),
        Column("leaked_bytes", "bytes", title="LEAKED BYTES", about="the leaked part"),
        Column("id", about="for walk buf --shape"),
        Column("evidence"),
        Column("type", title="TYPE OR SHAPE"),
        Column("full_type", hidden=True),
        Column("confidence", hidden=True, about="of the least sure"),
        Column("by_confidence", "named_counts", hidden=True, about="blocks by how sure their type is"),
        Column("least", "bytes", hidden=True, about="the sizes of the blocks"),
        Column("most", "bytes", hidden=True, about="the sizes of the blocks"),
        Column("buffer", "address", hidden=True, null="no block of it is known", about="one of the blocks"),
    ),
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the types of the blocks in use."""
    if args.live and args.leaked:
        raise UsageError("--live and --leaked exclude each other", "without either, all blocks in use are counted")
    heap = find_heap(target)
    report = Report(notes=list(heap.notes))
    if not heap.found:
        report.notes.insert(0, no_heap(target))
    judge(report, leak_verdict(heap))
    report.notes.extend(heap.roots.notes)
    types = typed_blocks(target)
    report.notes.extend(types.notes)
    kept: dict[int, int] = {}
    blocks = types.types.blocks()
    if args.retained or blocks <= _FEW:
        owners = find_owners(target)
        report.notes.extend(note for note in owners.roots.notes if note not in report.notes)
        for row, live, leaked in types.retained(owners.engine):
            if row.pooled:
                continue
            kept[id(row)] = (0 if args.leaked else live) + (0 if args.live else leaked)
    else:
        report.notes.append(f"RETAINED takes time for {blocks} blocks, and is left out: --retained computes it")
    parts = [(row, _part(row, args)) for row in types.rows()]
    rows = [each for each in parts if each[1].count]
    rows.sort(key=lambda each: (-each[1].bytes, each[0].name.text))
    total = _sum(rows)
    named = _sum([each for each in rows if each[0].name.is_type])
    top = args.top or _USUAL
    shown, rest = rows[:top], rows[top:]
    cells = [_cells(row, args, total, kept.get(id(row))) for row, _amount in shown]
    if rest:
        others = sum(part.bytes for _row, part in rest)
        report.notes.append(f"{len(rest)} more types and shapes, {others} bytes, are not shown (--top)")
    footer = ["-" * 72, f"Total: {total.count} blocks, {total.bytes} bytes; {len(rows)} types and shapes"]
    if total.count:
        share = 100 * named.count / total.count
        footer.append(f"A type is known for {named.count} blocks ({share:.1f} %), {named.bytes} bytes")
    if named.count:
        footer.append(f"How sure these types are: {_how_sure(rows, args)}")
    report.tables.append(COLUMNS.table(cells, footer=footer))
    report.totals = {
        "count": total.count,
        "bytes": total.bytes,
        "typed_count": named.count,
        "typed_bytes": named.bytes,
        "types": len(rows),
    }
    return report


def _part(row: TypeRow, args: argparse.Namespace) -> Amount:
    if args.live:
        return row.live
    return row.leaked if args.leaked else row.total


def _sum(rows: list[tuple[TypeRow, Amount]]) -> Amount:
    """Return how many blocks the rows have, and their bytes. Objects in a pool are no blocks."""
    return Amount(sum(part.count for row, part in rows if not row.pooled), sum(part.bytes for _row, part in rows))


def _by_confidence(row: TypeRow, args: argparse.Namespace) -> dict[str, int]:
    """Return how many blocks of a row have a type of which confidence, the surest first."""
    known = ((confidence, row.sure[confidence]) for confidence in CONFIDENCES if confidence in row.sure)
    counts = ((each, (0 if args.leaked else live) + (0 if args.live else leaked)) for each, (live, leaked) in known)
    return {confidence: count for confidence, count in counts if count}


def _how_sure(rows: list[tuple[TypeRow, Amount]], args: argparse.Namespace) -> str:
    """Return how many blocks have a type of which confidence: "70 proven, 342 likely"."""
    counts = dict.fromkeys(CONFIDENCES, 0)
    for row, _amount in rows:
        if row.name.is_type and not row.pooled:
            for confidence, count in _by_confidence(row, args).items():
                counts[confidence] += count
    return ", ".join(f"{count} {confidence}" for confidence, count in counts.items() if count)


def _cells(row: TypeRow, args: argparse.Namespace, total: Amount, kept: Optional[int]) -> tuple[Value, ...]:
    part = _part(row, args)
    share = 100 * part.bytes / total.bytes if total.bytes else 0.0
    first = row.first_leaked if args.leaked else row.first
    name, sure = row.name, _by_confidence(row, args)
    weakest = list(sure)[-1] if sure else name.confidence
    leaked = (row.leaked.count, row.leaked.bytes)
    tail = (name.full or name.text, weakest, sure, row.least, row.most, first)
    return part.count, part.bytes, share, kept, *leaked, row.id, name.evidence, name.text, *tail


TOTALS = (
    Column("count", "count"),
    Column("bytes", "bytes"),
    Column("typed_count", "count"),
    Column("typed_bytes", "bytes"),
    Column("types", "count", about="types and shapes"),
)


COMMAND = Command(
    name="types",
    summary="what fills the heap: how many blocks there are of each type or shape",
    description=(
        "A C++ object is known by its vtable, and its name by type information or by the vtable's symbol. So are\n"
        "the control blocks of shared_ptr (make_shared<Foo>) and exceptions in flight. The holder of a\n"
        "std::function, a std::any or a Rust trait object names the type of what it holds. The functions of a\n"
        "coroutine name its frame. All these names come from symbols: a stripped program has no such names.\n"
        "The buffer of a std::stringbuf (of a string stream) is known by the symbols of the C++ library.\n\n"
        "A vtable proves the type of an object that fills its block. If the block has room for one more word, the\n"
        "type is only likely: a std::optional, a pair or a struct may begin with such an object. An allocation record\n"
        "of just the size of the object proves it. The last line counts the blocks by confidence. --json has the\n"
        "counts of each row (by_confidence), and the weakest of them (confidence).\n\n"
        "Allocation records may show that a caller makes only one such type. Then its other blocks of the same\n"
        "size and shape have this type, too (evidence: records). If a program or library has debug information,\n"
        "types spread from its variables (`typegraph`).\n\n"
        "All other blocks are distinguished by their shape. A shape describes the first eight words: 0, numbers,\n"
        "text, pointers to code, to constants, to data, and to blocks of which size (heap-48). A shape is not a\n"
        "type. It distinguishes two kinds of blocks of one size.\n\n"
        "RETAINED is what the blocks of the type keep alive, themselves included. Freeing them all would free\n"
        "this memory. EVIDENCE says where a name comes from. ID is short for a shape: `walk buf --shape ID` lists its\n"
        "blocks, and `walk buf --type NAME` those of a type. Blocks of the allocator itself count, too."
    ),
    run=run,
    tables=(COLUMNS,),
    totals=TOTALS,
    verdict=True,
    arguments=(
        Argument("--live", action="store_true", help="only blocks that are not leaked"),
        Argument("--leaked", action="store_true", help="only leaked blocks"),
        Argument("--retained", action="store_true", help=f"compute RETAINED for more than {_FEW} blocks, too"),
        Argument("--top", type=positive, metavar="N", help=f"only the first N (default: {_USUAL})"),
    ),
    examples=(
        ("types --top 10", "the ten types or shapes that hold most memory"),
        ("types --leaked", "what has leaked, by type"),
    ),
)
