"""Sum the mappings of the process by kind."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from dmods.command import Argument, Command
from dmods.heap.mapping_kinds import KINDS, classify_mappings
from dmods.report import Column, Report, Table, Value
from dmods.target import AddressRange, Target

SUMMARY = (
    Column("kind", width=12),
    Column("count", "count", width=8),
    Column("bytes", "bytes", width=16),
    Column("dumped", "bytes", width=16),
)
EACH = (
    Column("start", "address", width=16),
    Column("end", "address", width=16),
    Column("bytes", "bytes", width=14),
    Column("dumped", "bytes", width=14),
    Column("flags", width=5),
    Column("kind", width=12),
    Column("offset", "address"),
    Column("path"),
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the mappings by kind, or one by one."""
    found = classify_mappings(target)
    by_kind = _by_kind(found)
    total = sum(size for _kind, _count, size, _dumped in by_kind)
    dumped = sum(there for _kind, _count, _size, there in by_kind)
    summary = Table(
        "kinds",
        SUMMARY,
        by_kind,
        footer=[f"{'Total':<12} {len(found):8} {total:16} {dumped:16}"] if found else [],
    )
    tables = [Table("mappings", EACH, (_row(mapping, kind) for mapping, kind in found)), summary]
    return Report(tables if args.verbose else [summary], totals={"count": len(found), "bytes": total, "dumped": dumped})


def _by_kind(found: Iterable[tuple[AddressRange, str]]) -> list[tuple[str, int, int, int]]:
    sums = {kind: [0, 0, 0] for kind in KINDS}
    for mapping, kind in found:
        its = sums[kind]
        its[0] += 1
        its[1] += mapping.size
        its[2] += mapping.dumped
    return [(kind, count, size, dumped) for kind, (count, size, dumped) in sums.items() if count]


def _row(mapping: AddressRange, kind: str) -> tuple[Value, ...]:
    offset = mapping.offset if mapping.path is not None else None
    return mapping.start, mapping.end, mapping.size, mapping.dumped, mapping.flags, kind, offset, mapping.path


COMMAND = Command(
    name="maps",
    summary="the mappings of the process: count, bytes and bytes in the dump, by kind",
    description=(
        "Kinds: heap and arena (the allocator's), stack, thread stack, file text, file data, anon (other anonymous\n"
        "memory), shared (shared memory without a file), vdso, and reserved: address space that cannot be\n"
        "accessed, such as guard pages and the unused end of an arena.\n"
        "BYTES is address space. DUMPED bytes of it are in the core itself; more may be readable from the files."
    ),
    run=run,
    arguments=(Argument("-v", "--verbose", action="store_true", help="list each mapping too"),),
    examples=(
        ("maps", "how much memory there is of each kind"),
        ("maps -v", "each mapping: where, how large, what for, which file"),
    ),
)
