"""Describe an object of Go, as `whatis` says it."""

from __future__ import annotations

from dmods.allocators.block import FREE, Block
from dmods.base.dataclass import replace
from dmods.report import Column, Schema, Table
from dmods.runtimes.golang.objects import go_types
from dmods.target import Target

OBJECT = Schema(
    "go",
    "the object of Go",
    (
        Column("object", "address", title="Go object"),
        Column("type", title="  type", null="it is not known"),
        Column("begins_with", title="  begins with a value of type", null="the type is of the whole object"),
        Column("state", title="  state", about="in use, garbage or free"),
        Column("span", title="  in"),
        Column("unswept", title="  its span", null="the sweeper has seen its span"),
    ),
    when="where the block is Go's",
)


def object_table(target: Target, block: Block, garbage: bool, span: str, unswept: bool) -> Table:
    """Return the object that the block is, or was. ``span`` is in words."""
    types = go_types(target) if block.state != FREE else None
    found = types.at(block.address) if types is not None else None
    kind = found[0] if found is not None else None
    state = "free" if block.state == FREE else "garbage, not yet collected" if garbage else "in use"
    row = (
        found[1] if found is not None else block.address,
        kind.text or None if kind is not None else None,
        kind.name if kind is not None and kind.shape == "begins" else None,
        state,
        span,
        "waits for the sweeper" if unswept else None,
    )
    columns = [replace(column, hidden=value is None) for column, value in zip(OBJECT.columns, row)]
    return OBJECT.table([row], columns, style="record")
