"""The part of `whatis` that knows objects of CPython."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.dataclass import replace
from dmods.graph.owners.root_paths import Path
from dmods.heap.block import FREE, Block
from dmods.report import Column, Schema, Table
from dmods.runtimes.python.describe import object_in, value_of
from dmods.runtimes.python.dicts import entries
from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.memory import DICT, LIST, TUPLE, Objects
from dmods.target import Target

_SHOWN = 8  # items of a container

OBJECT = Schema(
    "python",
    "the object of CPython that begins in the block, or at the address",
    (
        Column("object", "address", title="Python object"),
        Column("type", title="  type"),
        Column("type_address", "address", title="  its type lies at"),
        Column("value", title="  value"),
        Column("references", "count", title="  references", null="the object is immortal"),
        Column("held_by", title="  held by", null="no variable is known that leads to it"),
        Column("immortal", "flag", hidden=True),
    ),
    when="where an object of CPython is there",
)
ITEMS = Schema(
    "items",
    "an item of the container of CPython that is there",
    (Column("key"), Column("address", "address", width=16), Column("type"), Column("value")),
    when="where it has items",
)


def python_tables(target: Target, block: Optional[Block], address: int, path: Optional[Path]) -> Iterator[Table]:
    """Yield the object in the block, or at exactly the address, and its first items. ``path`` leads to the block."""
    python = find_python(target).python
    if python is None or (block is not None and block.state == FREE):
        return
    objects = python.objects
    at = object_in(objects, block.address, block.size) if block is not None else address
    kind = objects.type_of(at) if at is not None else None
    count = objects.refcount(at) if at is not None else None
    if at is None or kind is None or not count:
        return
    immortal = objects.immortal(count)
    held = path.python if path is not None else None
    row = (at, kind.name, kind.address, value_of(objects, at), None if immortal else count, held, immortal)
    absent = [name for name, value in (("references", row[4]), ("held_by", held)) if value is None]
    columns = [replace(column, hidden=column.hidden or column.name in absent) for column in OBJECT.columns]
    yield OBJECT.table([row], columns, style="record")
    items = list(_items(objects, at, kind.flags))
    if items:
        yield ITEMS.table(items, title="its first items")


def _items(objects: Objects, at: int, flags: int) -> Iterator[tuple[str, int, str, str]]:
    if flags & DICT:
        pairs = [(value_of(objects, key), value) for key, value in entries(objects, at, _SHOWN)]
    elif flags & (LIST | TUPLE):
        count = objects.words.at(at + 16) or 0
        # A tuple has its hash before its items since 3.14.
        first = objects.words.at(at + 24) if flags & LIST else at + (32 if objects.version >= (3, 14) else 24)
        found = objects.words.many(first, min(count, _SHOWN)) if first else None
        pairs = [(str(number), item) for number, item in enumerate(found or ())]
    else:
        return
    for key, item in pairs:
        kind = objects.type_of(item)
        yield key, item, kind.name if kind is not None else "?", value_of(objects, item)
