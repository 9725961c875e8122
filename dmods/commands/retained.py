"""Say what a block, or a variable, keeps alive alone."""

from __future__ import annotations

import argparse

from dmods.command import Argument, Command, positive
from dmods.commands.owners import ROOT, owners_values
from dmods.errors import ASK_WHATIS, UsageError
from dmods.graph.owners.heap_owners import Kept, Line, Owners, find_owners
from dmods.graph.owners.kept_by_parts import split
from dmods.graph.types.descriptions import looks_like
from dmods.report import Column, Report, Schema, Table, Value
from dmods.target import Target

_TOP = 10

RETAINED = Schema(
    "retained",
    "the block or the variable",
    (
        Column("address", "address", title="keeps alive"),
        Column("what", title="  what"),
        Column("size", "bytes", title="  its own bytes", null="it is a variable"),
        Column("count", "count", title="  blocks, itself included"),
        Column("bytes", "bytes", title="  bytes of all"),
        Column("percent", "percent", title="  of the live heap, %"),
        Column("owner", title="  held by", about="a name"),
        Column("roots", "objects", hidden=True, fields=ROOT),
    ),
)
KINDS = Schema(
    "kinds",
    "a type or shape of the blocks that it keeps alive",
    (
        Column("bytes", "bytes", width=12),
        Column("count", "count", title="BLOCKS"),
        Column("type"),
        Column("size", "bytes", title="BLOCK SIZE", null="the blocks have several sizes"),
        Column("example", "address", width=16),
    ),
)
PARTS = Schema(
    "parts",
    "a part of the variable",
    (
        Column("bytes", "bytes", width=12),
        Column("count", "count", title="BLOCKS"),
        Column("how", title="KEPT", about="alone or together"),
        Column("part"),
        Column("address", "address", title="FIRST WORD", null="it is a register"),
    ),
    when="for a variable",
)
BLOCKS = Schema(
    "below",
    "one of the largest blocks directly below it",
    (
        Column("address", "address", width=16),
        Column("size", "bytes"),
        Column("count", "count", title="KEEPS", about="what it keeps alive, itself included"),
        Column("bytes", "bytes", title="KEPT BYTES", about="what it keeps alive, itself included"),
        Column("looks_like", title="LOOKS LIKE", null="nothing is known of its content"),
    ),
    when="where there are some",
)

ABOVE = Schema("above", "a block that keeps it alive, from the inside out", BLOCKS.columns, when="where there are some")


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return what the block at the address keeps alive."""
    address = target.evaluate(args.address)
    owners = find_owners(target)
    # A variable of CPython lies in a block: its address names the variable, all others there the block.
    variable = owners.roots.variable_at(address)
    found = owners.above(address, args.top + 1) if variable is None else None
    report = Report(notes=list(owners.notes))
    if found is not None:
        chain, line = found
        scope, first = ("below", address), chain[0]
        block = owners.heap.block_at(address)
        what = looks_like(owners.heap, block) if block is not None else ""
        row = _row(owners, first, what or f"block of {first.size} bytes", line)
        root = None
    else:
        root, line = _find_root(owners, address)
        scope, chain = ("set", line.set or 0), []
        kept = Kept(address, 0, line.count or 0, line.bytes)
        row = _row(owners, kept, owners.name_of(line), line)
    report.tables.append(RETAINED.table([row], style="record"))
    kinds = owners.kinds(scope)
    rows: list[tuple[Value, ...]] = [
        (kind.bytes, kind.count, kind.name, kind.size, kind.example) for kind in kinds[: args.top]
    ]
    if len(kinds) > args.top:
        report.notes.append(f"{len(kinds) - args.top} more types are not shown (--top)")
    report.tables.append(KINDS.table(rows, title="of these types and sizes"))
    below = owners.largest(scope, args.top)
    if below:
        rows = [_block(owners, kept) for kept in below]
        report.tables.append(BLOCKS.table(rows, title="the largest parts directly below it"))
    if len(chain) > 1:
        rows = [_block(owners, kept) for kept in chain[1 : args.top + 1]]
        report.tables.append(ABOVE.table(rows, title="kept alive by, from the inside out"))
    # The engine's other answers are gone then.
    report.tables[1:1] = _parts(owners, root, line, args.top, report) if root is not None else []
    report.totals = {"count": row[3], "bytes": row[4]}
    return report


def _row(owners: Owners, kept: Kept, what: str, line: Line) -> tuple[Value, ...]:
    share = 100.0 * kept.bytes / owners.live if owners.live else 0.0
    size = kept.size or None  # a root is no block
    return kept.address, what, size, kept.count, kept.bytes, share, line.name, owners_values(line.roots)


def _find_root(owners: Owners, address: int) -> tuple[int, Line]:
    """Return the number of the root whose memory holds the address, and what it alone keeps alive."""
    number = owners.roots.variable_at(address)
    number = owners.roots.at(address) if number is None else number
    if number is None:
        raise UsageError(f"{address:#x} is in no live block and in no root's memory", ASK_WHATIS)
    held, root = owners.set_of_root(number), owners.roots.root(number)
    if held is None:
        raise UsageError(f"{root.name} alone keeps nothing alive", "`owners` lists who does")
    return number, owners.line_of(held)


def _parts(owners: Owners, root: int, line: Line, top: int, report: Report) -> list[Table]:
    parts = split(owners, root, line)
    if len(parts) > top:
        report.notes.append(f"{len(parts) - top} more parts are not shown (--top)")
    rows = [
        (part.bytes, part.count, "together" if part.shared else "alone", part.name, part.address)
        for part in parts[:top]
    ]
    return [PARTS.table(rows, title="by the parts of it that lead there")] if parts else []


def _block(owners: Owners, kept: Kept) -> tuple[Value, ...]:
    block = owners.heap.block_at(kept.address)
    looks = looks_like(owners.heap, block) if block is not None else ""
    return kept.address, kept.size, kept.count, kept.bytes, looks or None


TOTALS = (
    Column("count", "count", about="blocks that it keeps alive"),
    Column("bytes", "bytes"),
)


COMMAND = Command(
    name="retained",
    summary="what a block or a variable keeps alive alone: freeing it would free this",
    description=(
        "A block keeps another one alive if every path from a root to the other one leads through it. retained\n"
        "counts these blocks and the block itself (its dominator tree; no approximation). For an address in a\n"
        "variable or another root, it counts the blocks that this root alone keeps alive. It divides them by the\n"
        "words of the root, or by the members of the variable where debug information has them. Blocks that\n"
        "one member alone keeps alive would be free without it. Blocks that several members lead to have a line of\n"
        "their own. Then it shows the largest parts, and the blocks that keep this one alive."
    ),
    run=run,
    tables=(RETAINED, PARTS, KINDS, BLOCKS, ABOVE),
    totals=TOTALS,
    arguments=(
        Argument("--top", type=positive, default=_TOP, metavar="N", help=f"N lines in each table ({_TOP})"),
        Argument("address", metavar="ADDR", help="an address in a block or a variable: 0x..., a symbol, symbol+offset"),
    ),
    examples=(("retained 0x55d0c8a012a0", "what the block there keeps alive"),),
)
