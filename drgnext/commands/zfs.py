"""OpenZFS: the memory of its cache, and how full the metaslabs of its pools are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Optional

from dmods.command import KERNEL, Argument, Command
from dmods.errors import UserError
from dmods.report import Column, Report, Schema
from drgnext.commands._zfs import ARC, arc_table
from drgnext.kernel.system.openzfs import NEARLY_FULL, Vdev, cache, missing, pools
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

POOLS = Schema(
    "pools",
    "a vdev of a pool",
    (
        Column("pool", width=12),
        Column("vdev", width=16),
        Column("kind", width=8),
        Column("purpose", width=8),
        Column("size", "size", width=6),
        Column("allocated", "size", title="ALLOC", width=6),
        Column("percent", "percent", title="FULL%", width=6),
        Column("metaslabs", "count"),
        Column("nearly_full", "count", title=f">{NEARLY_FULL}%", width=6, about="metaslabs"),
        Column("share", "percent", title="SHARE%", width=6, about="of such metaslabs"),
        Column("fragmentation", "percent", title="FRAG%", width=6, null="too few metaslabs know theirs"),
        Column("address", "address", hidden=True),
    ),
)
METASLABS = Schema(
    "metaslabs",
    "a metaslab",
    (
        Column("pool", width=12),
        Column("vdev", width=16),
        Column("number", "count", title="MS"),
        Column("start", "address", width=14, about="within the vdev"),
        Column("size", "size", width=6),
        Column("allocated", "size", title="ALLOC", width=6),
        Column("percent", "percent", title="FULL%", width=6),
        Column("fragmentation", "percent", title="FRAG%", width=6, null="it is not known"),
        Column("largest_free", "size", title="LARGEST", width=7, null="the metaslab is not loaded"),
        Column("metaslab", "address", width=16),
    ),
    when="with -v",
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the cache, the vdevs of each pool, and with -v each metaslab."""
    reader = Reader(kernel)
    why = missing(reader)
    if why:
        raise UserError(why, "load zfs.ko with its debug information: drgn -s zfs.ko ...; zfs needs it")
    report = Report()
    found = cache(reader)
    if found is not None:
        report.tables.append(arc_table(found))
    rows, each = [], []
    count = total = full = 0
    for pool in pools(reader):
        if args.pool and pool.name != args.pool:
            continue
        count += 1
        for vdev in pool.vdevs:
            total, full = total + len(vdev.metaslabs), full + vdev.nearly_full
            rows.append(
                (
                    *(pool.name, vdev.name, vdev.kind, vdev.purpose, vdev.size, vdev.allocated),
                    *(_share(vdev.allocated, vdev.size), len(vdev.metaslabs), vdev.nearly_full),
                    *(_share(vdev.nearly_full, len(vdev.metaslabs)), _fragmentation(vdev), vdev.address),
                )
            )
            each += [
                (
                    *(pool.name, vdev.name, one.number, one.start, one.size, one.allocated),
                    *(_share(one.allocated, one.size), one.fragmentation, one.largest_free, one.address),
                )
                for one in vdev.metaslabs
                if args.verbose
            ]
    if args.pool and not count:
        raise UserError(f"no pool {args.pool!r} is imported", "zfs lists all pools")
    report.tables.append(POOLS.table(rows, footer=[] if rows else ["no pool is imported"]))
    if args.verbose:
        report.tables.append(METASLABS.table(each))
    report.totals.update(pools=count, metaslabs=total, nearly_full=full)
    report.notes += reader.notes
    return report


def _share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _fragmentation(vdev: Vdev) -> Optional[float]:
    """Return the mean over the metaslabs that know theirs, as metaslab_group_fragmentation() has it."""
    known = [one.fragmentation for one in vdev.metaslabs if one.fragmentation is not None]
    return sum(known) / len(known) if known and 2 * len(known) > len(vdev.metaslabs) else None


COMMAND = Command(
    name="zfs",
    summary="OpenZFS: the memory of its cache, and how full the metaslabs of its pools are",
    description=f"""A metaslab with more than {NEARLY_FULL} % in use (metaslab_df_free_pct is 4) looks for the best
fit: writes to it take much longer. SHARE% is the share of such metaslabs in a vdev. A pool gets slow when SHARE% nears
100, even if other metaslabs of the pool have room. FULL% and FRAG% of a vdev are those of its metaslabs; the
largest free segment of a metaslab is known only while it is loaded.
In the table of the ARC, the lines that are part of its size add up to it. Data and metadata lie in pages, in small
blocks, and in buffers of programs that read. memstat -v shows the same table beside all memory.""",
    run=run,
    tables=(ARC, POOLS, METASLABS),
    totals=(Column("pools", "count"), Column("metaslabs", "count"), Column("nearly_full", "count")),
    arguments=(
        Argument("pool", nargs="?", help="only this pool"),
        Argument("-v", "--verbose", action="store_true", help="also each metaslab"),
    ),
    requires=(KERNEL,),
    examples=(("zfs", "the ARC and all pools"), ("zfs tank -v", "each metaslab of a pool")),
)
