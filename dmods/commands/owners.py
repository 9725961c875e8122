"""Say who holds the heap: every byte of it has one line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Optional

from dmods.base.dataclass import replace
from dmods.base.sizes import human_size
from dmods.command import Argument, Command, positive
from dmods.graph.owners.heap_owners import (
    ALONE,
    FREE_,
    LEAKS,
    NEVER,
    OWN_,
    SHARED,
    TOP_,
    Kind,
    Line,
    Owners,
    find_owners,
    owners_by_all_edges,
)
from dmods.graph.roots.ranked_root import Root
from dmods.heap.ledger import LEDGER, find_ledger
from dmods.heap.verdict import judge, leak_verdict, lost_bytes
from dmods.report import Address, Column, Report, Schema, Table, Value
from dmods.target import Target

_TOP = 20
_MOST_ROOTS = 64  # of a line, in JSON
ROOT = Schema(
    "root",
    "a root: memory that the program finds without a pointer",
    (
        Column("name"),
        Column("kind"),
        Column("address", "address", null="it is a register"),
        Column("tid", "count", null="it belongs to no thread"),
    ),
)
_RULE = "-" * 72
_UNKNOWN = "unknown"
_HOW = {
    _UNKNOWN: _UNKNOWN,
    ALONE: "alone",
    SHARED: "shared",
    LEAKS: "leaked",
    FREE_: "free",
    TOP_: "free",
    NEVER: "free",
    OWN_: "malloc's own",
}
_SUMS = (
    Column("bytes", "bytes", width=12),
    Column("percent", "percent", title="%HEAP", about="of the heap, memory that was never touched left out"),
    Column("count", "count", title="BLOCKS", null="the line is not made of blocks"),
    Column("how", title="HELD", about="alone, shared, leaked, free, malloc's own, unknown, live, or empty"),
)
ROOTS = Schema(
    "owners",
    "an owner, and the bytes that it holds",
    (
        *_SUMS,
        Column("each_bytes", "size", title="EACH", null="it has one root, or is no root"),
        Column("owner", about="a name"),
        Column("through", "address", title="LARGEST BLOCK", null="no block stands out"),
        Column("through_bytes", "size", title="KEEPS", null="no block stands out"),
        Column("root_count", "count", hidden=True, null="it is no root"),
        Column("roots", "objects", hidden=True, about="the first 64", fields=ROOT),
    ),
    when="with --by root (the default)",
)
SIZES = Schema(
    "kinds",
    "a size of blocks",
    (
        *_SUMS,
        Column("size", "bytes", title="BLOCK SIZE", null="the line is not a size"),
        Column("example", "address", null="the line is not a size"),
    ),
    when="with --by size",
)
TYPES = Schema(
    "kinds",
    "a type or a shape",
    (
        *_SUMS,
        Column("type"),
        Column("size", "bytes", title="BLOCK SIZE", null="the line is not a type, or its blocks have several sizes"),
        Column("example", "address", null="the line is not a type, or its blocks have several sizes"),
    ),
    when="with --by type",
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return who holds the heap."""
    return _report(owners_by_all_edges(target) if args.all_edges else find_owners(target), args)


def _report(owners: Owners, args: argparse.Namespace) -> Report:
    report = Report(notes=list(owners.notes))
    if args.verbose:
        report.notes.append(
            f"{owners.set_aside} pointers are left over from an earlier use of the memory, and own nothing "
            "(--all-edges follows them)"
        )
    verdict = leak_verdict(owners.heap)
    judge(report, verdict)
    if owners.missing:
        report.notes.append(f"{owners.missing} bytes in use have no owner: please report this defect of dmods")
    table = _by_root(owners, args.top, args.verbose) if args.by == "root" else _by_kind(owners, args.by, args.top)
    total, ledger = owners.total, find_ledger(owners.target)
    lost = lost_bytes(owners.heap)
    table.footer = [_RULE, f"{total:12} bytes ({human_size(total)}): the lines sum to {_extent(*lost)}"]
    report.tables.append(table)
    by_how = {how: owners.sum_of(how) for how in _HOW}
    report.totals = {
        "heap_bytes": total,
        "alone_bytes": by_how[ALONE],
        "shared_bytes": by_how[SHARED],
        "leaked_bytes": by_how[LEAKS] if verdict.possible else None,
        "unknown_bytes": 0 if verdict.possible else by_how[LEAKS],
        "free_bytes": by_how[FREE_],
        "top_bytes": by_how[TOP_],
        "never_bytes": by_how[NEVER],
        "own_bytes": by_how[OWN_],
        "missing_bytes": sum(lost),
        "memory": ledger.values(),
    }
    return report


def _rest(owners: Owners) -> list[Line]:
    """Return the lines of what no root holds. Without a verdict nothing is called leaked."""
    possible, lost = leak_verdict(owners.heap).possible, any(lost_bytes(owners.heap))
    rest = []
    for line in owners.lines:
        if line.how == LEAKS and not possible:
            rest.append(replace(line, how=_UNKNOWN, name="in use; the dump does not tell who holds them"))
        elif line.how == OWN_ and lost:
            rest.append(replace(line, name=f"{line.name}; and what the dump lacks"))
        elif line.how not in (ALONE, SHARED):
            rest.append(line)
    return rest


def _extent(lost: int, unknown: int) -> str:
    """Return what the lines sum to, where the dump lacks `lost` bytes of the heap and `unknown` that may be heap."""
    if lost:
        more = f", and {human_size(unknown)} that may be heap" if unknown else ""
        return f"what is known of the heap; the dump lacks {human_size(lost)} of it{more}"
    if unknown:
        return f"the heap that was found; the dump lacks {human_size(unknown)} of memory that may be heap"
    return "the whole heap"


def _by_root(owners: Owners, top: int, verbose: bool) -> Table:
    held = [line for line in owners.lines if line.how in (ALONE, SHARED)]
    rest = _rest(owners)
    rows: list[tuple[Value, ...]] = []
    for line in held[:top]:
        largest = owners.largest(("set", line.set), 1) if line.set is not None else []
        place = (largest[0].address, largest[0].bytes) if largest else (None, None)
        name = owners.full_name(line) if verbose else owners.name_of(line)
        roots = owners.leading_to(line)
        each = line.bytes // len(roots) if len(roots) > 1 else None
        rows.append((*_sums(owners, line), each, name, *place, len(roots), owners_values(roots[:_MOST_ROOTS])))
    more = held[top:]
    if more:
        count, size = sum(line.count or 0 for line in more), sum(line.bytes for line in more)
        sums = _sums(owners, Line("", "", count, size))
        rows.append((*sums[:3], "", None, f"{len(more)} more owners (--top)", None, None, None, []))
    rows.extend((*_sums(owners, line), None, line.name, None, None, None, []) for line in rest)
    if any(line.how == SHARED for line in held[:top]):
        return ROOTS.table(rows)
    columns = [replace(column, hidden=True) if column.name == "each_bytes" else column for column in ROOTS.columns]
    return ROOTS.table(rows, columns)


def _by_kind(owners: Owners, by: str, top: int) -> Table:
    kinds, by_type = owners.kinds(("live", 0), by), by == "type"
    rows: list[tuple[Value, ...]] = []
    # The allocator's own blocks that roots hold are in its line.
    own = sum(line.bytes for line in owners.lines if line.how in (ALONE, SHARED)) - sum(kind.bytes for kind in kinds)
    for kind in kinds[:top]:
        rows.append(_kind_row(owners, kind, by_type))
    more = kinds[top:]
    name: tuple[Value, ...] = (f"{len(more)} more types (--top)",) if by_type else ()
    if more:
        line = Line("", "", sum(kind.count for kind in more), sum(kind.bytes for kind in more))
        rows.append((*_sums(owners, line)[:3], "live", *name, None, None))
    for each in _rest(owners):
        size = each.bytes + (own if each.how == OWN_ else 0)
        named: tuple[Value, ...] = (each.name,) if by_type else ()
        rows.append((*_sums(owners, Line(each.name, each.how, each.count, size)), *named, None, None))
    return (TYPES if by_type else SIZES).table(rows)


def _kind_row(owners: Owners, kind: Kind, by_type: bool) -> tuple[Value, ...]:
    name: tuple[Value, ...] = (kind.name,) if by_type else ()
    return (*_sums(owners, Line("", "", kind.count, kind.bytes))[:3], "live", *name, kind.size, kind.example)


def _sums(owners: Owners, line: Line) -> tuple[Value, ...]:
    total = owners.total - owners.sum_of(NEVER)
    share = 100.0 * line.bytes / total if total and line.how != NEVER else 0.0
    return line.bytes, share, line.count, _HOW.get(line.how, "")


def _value(root: Root) -> dict[str, Value]:
    address: Optional[Address] = Address(root.address) if root.address is not None else None
    return {"name": root.name, "kind": root.kind, "address": address, "tid": root.tid}


def owners_values(roots: Sequence[Root]) -> list[dict[str, Value]]:
    """Return the roots as JSON has them."""
    return [_value(root) for root in roots]


TOTALS = (
    Column("heap_bytes", "bytes"),
    Column("alone_bytes", "bytes"),
    Column("shared_bytes", "bytes"),
    Column("leaked_bytes", "bytes", null="no verdict on leaks is possible"),
    Column("unknown_bytes", "bytes", about="0 where a verdict on leaks is possible"),
    Column("free_bytes", "bytes"),
    Column("top_bytes", "bytes"),
    Column("never_bytes", "bytes"),
    Column("own_bytes", "bytes"),
    Column("missing_bytes", "bytes", about="of the heap, or of what may be heap: the dump lacks them"),
    Column("memory", "object", fields=LEDGER),
)


COMMAND = Command(
    name="owners",
    summary="who holds the heap: every byte has one owner",
    description=(
        "Each block in use is counted in exactly one line: in the line of its only root, of the set of roots that\n"
        "share it, or of the leaks. Free memory and the allocator's own blocks have lines, too. So the lines sum to\n"
        "the whole heap. A root is a variable (its symbol, or module`offset), a frame of a thread, thread-local\n"
        "memory, a register or a mapping.\n\n"
        "Where several roots share memory, EACH is the part of each root if they share it evenly. More than 64 roots\n"
        'are "many roots", with their number and the names of the first.\n\n'
        "If a variable and a stack both lead to a block, the variable owns it. Of several frames of a stack, the\n"
        "outermost owns it. So a stale pointer on a stack takes no block away from the structure that owns it.\n"
        "A block that only stacks hold belongs to the thread whose arena it comes from.\n\n"
        "In the heap, a pointer counts if it is in a field that other blocks of its kind have, too. A word that is\n"
        "left over from an earlier use of the memory owns a block only if no better pointer leads to the block. -v\n"
        "says how many such words there are, --all-edges follows them.\n\n"
        "With debug information, a local variable is shown with its function, and with the member that leads to all\n"
        "of the memory: `main: server.by_token`. -v and JSON have its thread and frame.\n\n"
        "Variables of CPython need no debug information: `app.store.cache` is a variable of a module,\n"
        "`app.store.Cache.pool` one of a class, `app/store.py:41 load: rows` a local one. If a variable of a\n"
        "module or class and a variable of C both lead to a block, the variable of CPython owns it.\n\n"
        'Where no verdict on leaks is possible, a block that no root holds is "unknown": the dump may lack its\n'
        "holder.\n\n"
        "LARGEST BLOCK is the block of the line that keeps the most memory alive. `retained` shows that memory."
    ),
    run=run,
    tables=(ROOTS, TYPES, SIZES),
    totals=TOTALS,
    verdict=True,
    arguments=(
        Argument("--top", type=positive, default=_TOP, metavar="N", help=f"N lines, and one for the others ({_TOP})"),
        Argument(
            "--by",
            choices=("root", "type", "size"),
            default="root",
            help="by owner; by type, or by shape where no type is known (see `types`); or by size",
        ),
        Argument(
            "-v", "--verbose", action="store_true", help="with thread and frame; say how many pointers own nothing"
        ),
        Argument("--all-edges", action="store_true", help="follow every pointer, as findleaks does"),
    ),
    examples=(
        ("owners", "the largest owners"),
        ("owners --by type", "the same bytes by type"),
    ),
)
