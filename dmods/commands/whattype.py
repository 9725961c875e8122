"""Say of which type a block is, and who says so."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.base.dataclass import replace
from dmods.command import Argument, Command
from dmods.commands.typegraph import NO_DEBUG_INFORMATION
from dmods.errors import ASK_WHATIS, UsageError
from dmods.graph.types.block_kinds import find_types
from dmods.graph.types.proven_sizes import object_size
from dmods.graph.types.typed_rows import IN_POOL
from dmods.graph.types.typegraph import ALIKE, PooledObject, TypeGraph, debug_problems, find_typegraph
from dmods.heap.block import FREE, Block
from dmods.heap.content import describe_content
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.report import Column, Report, Schema, Table, Value
from dmods.target import Target

ARRAY = 1  # a shape
TYPE = Schema(
    "type",
    "the block",
    (
        Column("address", "address", title="block"),
        Column("size", "bytes", title="  bytes"),
        Column("type", title="  type", about="`not known` where no type is known"),
        Column("skip", "bytes", title="  bytes before it", null="the object begins where the block does"),
        Column("each", "bytes", title="  bytes of one", null="it is not known", about="of one object"),
        Column("objects", "count", title="  how many fit", null="it is not an array"),
        Column("field", title="  at the address", null="it is not known"),
        Column("evidence", title="  evidence", null="no type is known"),
        Column("confidence", title="  confidence", null="no type is known"),
        Column("source", title="  says", null="no type is known, or its vtable tells it"),
        Column("source_at", "address", title="  its pointer is at", null="no pointer tells it"),
        Column("full_type", hidden=True, null="no type is known"),
        Column("other", title="  but also", null="no source disagrees"),
        Column("other_source", title="  says", null="no source disagrees"),
    ),
)

OBJECT = Schema(
    "object",
    "the object in a pool of the program",
    (
        Column("address", "address", title="object"),
        Column("size", "bytes", title="  bytes"),
        Column("type", title="  type"),
        Column("each", "bytes", title="  bytes of the type"),
        Column("field", title="  at the address", null="it is not known"),
        Column("block", "address", title="  in the block"),
        Column("evidence", title="  evidence"),
        Column("confidence", title="  confidence"),
        Column("source", title="  says"),
        Column("source_at", "address", title="  its pointer is at"),
        Column("full_type", hidden=True),
    ),
    when="where the address is in a pool",
)
POOL = Schema(
    "pool",
    "a type of objects in the block",
    (
        Column("type"),
        Column("count", "count", width=8),
        Column("bytes", "bytes", width=12),
        Column("stride", "bytes", title="EVERY"),
    ),
    when="where the block is a pool",
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the type of the block at the address."""
    block, graph, report = block_and_graph(target, args.address)
    address = target.evaluate(args.address)
    if graph is None:
        report.tables.append(_table(_by_itself(target, block)))
    else:
        found = graph.object(address)
        if found is not None:
            report.tables.append(_object_table(graph, found, block))
        elif graph.at(block) is None:
            report.tables.append(_table(_by_itself(target, block)))
        else:
            report.tables.append(type_table(graph, block, address))
        pool = graph.pool(block)
        if pool:
            report.tables.append(POOL.table(pool, title=f"objects in the block {block.address:#x}"))
    content = describe_content(find_heap(target), block, most=1)
    if content.objects:
        report.notes.append(f"its first words: {content.summary()}")
    return report


def _object_table(graph: TypeGraph, found: PooledObject, block: Block) -> Table:
    source = graph.holder(found.source)
    evidence = f"content: {found.proofs} pointers agree" if found.proofs else IN_POOL
    row = (
        *(found.address, found.extent, found.type, found.size, found.field or None),
        *(block.address, evidence, "possible", source, found.source, found.full),
    )
    return OBJECT.table([row], style="record")


def block_and_graph(target: Target, text: str) -> tuple[Block, Optional[TypeGraph], Report]:
    """Return the block in use at an address, the types, and a report with their notes. Raises UsageError."""
    address = target.evaluate(text)
    heap = find_heap(target)
    block = heap.block_at(address)
    if block is None or block.state == FREE:
        state = "is in no block of the heap" if block is None else "is in a free block"
        raise UsageError(f"{address:#x} {state}", ASK_WHATIS)
    graph = find_typegraph(target)
    notes = graph.notes if graph is not None else [*debug_problems(target), NO_DEBUG_INFORMATION]
    report = Report(notes=[*heap.notes, *notes])
    return block, graph, report


def _by_itself(target: Target, block: Block) -> tuple[Value, ...]:
    """Return the row of a block of which debug information says nothing: its vtable or its holder may name it."""
    types = find_types(target)
    (kind,) = types.kinds.kinds_at(0, types.heaps[0].marks.engine, [block.address])
    name = types.name(kind) if kind is not None else None
    if name is None or not name.is_type:
        return _unknown(block)
    asked = _asked(types.heaps[0], block)
    proven = kind is not None and asked is not None and asked == object_size(types, kind)
    confidence = "proven" if proven else name.confidence
    named = (name.evidence, confidence, None, None, name.full or name.text)
    return block.address, block.size, name.text, None, None, None, None, *named, None, None


def _asked(heap: ProcessHeap, block: Block) -> Optional[int]:
    """Return how many bytes the program asked for, or None where no record tells."""
    record = heap.records.of_block(block.address)
    return record.requested if record is not None and record.requested <= block.size else None


def _unknown(block: Block) -> tuple[Value, ...]:
    return block.address, block.size, "not known", *(None,) * 11


def type_table(graph: TypeGraph, block: Block, address: int) -> Table:
    """Return what is said of a block, as a table of one row."""
    claim = graph.at(block)
    if claim is None:
        return _table(_unknown(block))
    other = next((each for each in graph.conflicts if each.address == block.address), None)
    inside = address - block.address
    many = claim.shape == ARRAY and claim.size
    said = other.other if other is not None and other.other.type != claim.type else other.kept if other else None
    row = (
        block.address,
        block.size,
        f"not known: {claim.type}, or another" if claim.disputed else claim.type,
        claim.skip or None,
        claim.size or None,
        (block.size - claim.skip) // claim.size if many else None,
        graph.field(block, inside) or None,
        claim.evidence,
        claim.confidence(block.size, graph.target.arch.word, _asked(graph.heap, block)),
        graph.source(claim),
        claim.source if claim.source and claim.evidence not in ("taught", "vtable", ALIKE) else None,
        claim.full,
        said.type if said is not None else None,
        graph.source(said) if said is not None else None,
    )
    return _table(row)


def _table(row: tuple[Value, ...]) -> Table:
    """Return a table of one block, without the columns that say nothing of it."""
    columns = [replace(one, hidden=value is None or one.hidden) for one, value in zip(TYPE.columns, row)]
    return TYPE.table([row], columns, style="record")


COMMAND = Command(
    name="whattype",
    summary="the type of a block, and the source that says so",
    description=(
        "The type is printed as people write it (std::string), an array with [] at its end; JSON has gdb's spelling,\n"
        "too. `bytes before it` is shown if the object does not begin where its block does. `says` is the variable,\n"
        "or the field of another block, whose pointer gives the block its type. Where another source disagrees, both\n"
        "are shown. Without debug information, the block's vtable or its holder may show the type, as for `types`."
    ),
    run=run,
    tables=(replace(TYPE, when="where the address is in no object of a pool"), OBJECT, POOL),
    arguments=(Argument("address", metavar="ADDR", help="an address in a block"),),
    examples=(("whattype 0x55d0c8a012a0", "which struct or class the block there is"),),
)
