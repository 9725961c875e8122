"""The part of `whatis` that knows objects of Go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.allocators.golang.heap import GoBlocks
from dmods.base.dataclass import replace
from dmods.heap.block import FREE, Block
from dmods.heap.process_heap import ProcessHeap
from dmods.report import Column, Table
from dmods.runtimes.golang.objects import go_types

OBJECT = (
    Column("object", "address", title="Go object"),
    Column("type", title="  type"),
    Column("begins_with", title="  begins with a value of type"),
    Column("state", title="  state"),
    Column("span", title="  in"),
    Column("unswept", title="  its span"),
)


def go_tables(heap: ProcessHeap, block: Optional[Block]) -> Iterator[Table]:
    """Yield the object of Go that the block is, or was."""
    go = next((one for one in heap.heaps if isinstance(one, GoBlocks)), None)
    span = go.span_at(block.address) if go is not None and block is not None else None
    if go is None or go.heap is None or block is None or span is None:
        return
    types = go_types(heap.target) if block.state != FREE else None
    found = types.at(block.address) if types is not None else None
    kind = found[0] if found is not None else None
    state = "free" if block.state == FREE else "garbage, not yet collected" if heap.is_garbage(block) else "in use"
    row = (
        found[1] if found is not None else block.address,
        kind.text or None if kind is not None else None,
        kind.name if kind is not None and kind.shape == "begins" else None,
        state,
        go.described(span),
        "waits for the sweeper" if go.heap.needs_sweeping(span) else None,
    )
    columns = [replace(column, hidden=value is None) for column, value in zip(OBJECT, row)]
    yield Table("go", columns, [row], style="record")
