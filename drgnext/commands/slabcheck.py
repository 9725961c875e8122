"""Check slab objects for damage: freelists, red zones, poison."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Optional

from dmods.base.progress import Progress
from dmods.command import KERNEL, Argument, Command, positive
from dmods.heap.verdict import NO_VERDICT
from dmods.report import Column, Report, Schema, Value, Verdict
from drgnext.commands._slabs import LARGE, cache_name, objects_of, sentence
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.callers import KernelCallers
from drgnext.kernel.slabs.objects import Object, SlabObjects
from drgnext.kernel.slabs.tracks import Tracks

_FAULTS = Schema(
    "faults",
    "damage",
    (
        Column("cache", width=16),
        Column("object", "address", width=16, null="it belongs to no object"),
        Column("fault"),
        Column(
            "culprit",
            "address",
            width=16,
            null="it is not known",
            about="the object that was likely written beyond its end",
        ),
        Column("kind", hidden=True, about="a name for scripts"),
        Column("at", "address", hidden=True, null="it is not known"),
        Column("length", "bytes", hidden=True, null="it is damage of a list or a count"),
        Column("found", hidden=True, null="it is damage of a list or a count", about="hexadecimal digits"),
    ),
)
_WHO = Schema(
    "who",
    "who allocated or freed a culprit",
    (Column("object", "address", width=16), Column("who")),
    when="where that was recorded",
)
_MOST = 64  # culprits that are named
_SHOWN = 8  # bytes that are shown

_LINKS = {
    "leaves": "its link to the next free object is {value:#x}, which is no object of its slab",
    "twice": "its link leads to {value:#x}, which is on the list already",
    "count": "the slab at {slab:#x} counts another number of objects in use than its freelist leaves: {value}",
}
_ZONES = {
    "before": "the red zone before it is overwritten at {at:#x}, {length} bytes: {found}",
    "behind": "the red zone behind it is overwritten at {at:#x}, {length} bytes: {found}",
    "freed": "it was written after it was freed, at +{offset:#x}, {length} bytes: {found}",
    "rest": "the end of its slab is overwritten at {at:#x}, {length} bytes: {found}",
}


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return what is damaged, with the object that is likely to have done it."""
    slabs = objects_of(kernel)
    with Progress("checking slab objects") as bar:
        total = slabs.counted.kinds["slab"] << slabs.pages.layout["page_bits"]
        overwritten, over_count = slabs.engine.overwritten(lambda done: bar.update(done, max(done, total)))
    damage, damage_count, missing, cut = slabs.engine.damage()
    broken = slabs.broken
    guarded_rows = list(_beside_guarded(slabs))
    rows = [*guarded_rows, *_broken(slabs, broken), *_damage(slabs, damage), *_overwritten(slabs, overwritten)]
    if args.cache is not None:
        rows = [row for row in rows if row[0] == args.cache]
    found = len(rows)
    report = Report([_FAULTS.table(rows[: args.top])], notes=list(slabs.notes))
    count = len(guarded_rows) + len(broken) + damage_count + over_count
    guarded = sum(bool(cache.flags & {"RED_ZONE", "POISON"}) for cache in slabs.caches)
    if not guarded:
        report.notes.append(
            "no cache has red zones or poison: only freelists and counts were checked (slub_debug=FZP has more)"
        )
    if missing:
        report.notes.append(
            f"{missing} pages of slabs are not in the dump: they were not checked, and {cut} freelists only to there"
        )
    lost = _lost(slabs, missing)
    culprits = list(_culprits(kernel, slabs, rows[: args.top]))
    if culprits:
        report.tables.append(_WHO.table(culprits, style="plain", title="who used them last"))
    if not found and args.cache is None:
        where = f"{sum(one.slabs for one in slabs.usage())} slabs"
        report.tables[0].footer = [f"no damage in what the dump has of {where}" if lost else f"no damage in {where}"]
    report.verdict = Verdict(not lost or count > 0, lost)
    report.status = 0 if report.verdict.possible else NO_VERDICT
    report.totals.update(faults=found if args.cache is not None else count, guarded_caches=guarded)
    return report


def _lost(slabs: SlabObjects, missing: int) -> str:
    """Return what could not be checked, "" if nothing is missing."""
    pages = missing + slabs.counted.kinds["unknown"]
    lists = sum(one.cut for one in slabs.usage())
    if pages:
        return f"{pages} pages that are or may be slabs are not in the dump"
    return f"{lists} lists of free objects lead into pages that the dump lacks" if lists else ""


def _before(slabs: SlabObjects, address: Optional[int]) -> Optional[int]:
    """Return the object before an object in its slab: what runs beyond its end damages the next one."""
    found = slabs.object_at(address) if address is not None else None
    if found is None or found.cache is None or found.slot == 0:
        return None
    return found.address - found.cache.size


def _broken(slabs: SlabObjects, rows: list[tuple[int, Optional[int], int, int]]) -> Iterator[tuple[Value, ...]]:
    for cache, cpu, after, value in rows:
        where = f"the freelist of CPU {cpu}" if cpu is not None else "a list of sheaves"
        name = slabs.caches[cache].name
        text = f"{where} leads to {value:#x}, which is no object of the cache"
        yield name, after or None, text, _before(slabs, after or None), "list", after or None, None, None


def _damage(slabs: SlabObjects, rows: list[tuple[str, int, int, Optional[int], int]]) -> Iterator[tuple[Value, ...]]:
    for kind, slab, cache, address, value in rows:
        text = _LINKS[kind].format(slab=slab, value=value)
        if address is None and kind != "count":
            text = f"the slab at {slab:#x} has a bad freelist: {value:#x}"
        name = slabs.caches[cache].name if cache < len(slabs.caches) else LARGE
        culprit = _before(slabs, address) if kind in ("leaves", "twice") else None
        yield name, address, text, culprit, kind, address or slab, None, None


def _overwritten(
    slabs: SlabObjects, rows: list[tuple[str, int, int, int, int, int, bytes]]
) -> Iterator[tuple[Value, ...]]:
    for zone, address, cache, at, length, _expected, there in rows:
        found = there[:length].hex(" ")
        text = _ZONES[zone].format(at=at, length=length, offset=at - address, found=found)
        culprit = _before(slabs, address) if zone == "before" else address
        yield slabs.caches[cache].name, address, text, culprit, zone, at, length, found


def _beside_guarded(slabs: SlabObjects) -> Iterator[tuple[Value, ...]]:
    """Yield what was written beside objects that KFENCE guards. Each has a page to itself, so its owner did it."""
    for one, each in slabs.guarded.overwritten():
        assert one.guarded is not None
        address, length = one.guarded.address, len(each.found)
        side = "before" if each.at < address else "behind"
        there = each.found[:_SHOWN].hex(" ")
        text = f"KFENCE's pattern {side} it is overwritten at {each.at:#x}, {length} bytes: {there}"
        yield one.name, address, text, address, "guarded", each.at, length, there


def _culprits(kernel: Kernel, slabs: SlabObjects, rows: list[tuple[Value, ...]]) -> Iterator[tuple[Value, ...]]:
    """Yield who allocated and freed the culprits, where that was recorded."""
    tracks = Tracks(slabs)
    if not tracks.any:
        return
    callers = KernelCallers(kernel)
    wanted = dict.fromkeys(row[3] for row in rows if isinstance(row[3], int))
    for address in list(wanted)[:_MOST]:
        found: Optional[Object] = slabs.object_at(address)
        if found is None:
            continue
        for freed, verb in ((False, "allocated"), (True, "freed")):
            record = tracks.of(found, freed)
            if record is not None:
                yield address, f"of {cache_name(found.cache)}, {verb} by {sentence(callers, record)}"


COMMAND = Command(
    name="slabcheck",
    summary="damage to slab objects: broken freelists, overwritten red zones and poison",
    description=(
        "slabcheck checks the freelist of each slab, CPU and sheaf, and the counts of each slab. With slub_debug=Z\n"
        "and P on the kernel's command line, it also checks the red zones around objects and the poison in free\n"
        "objects. CULPRIT is the object whose user probably did the damage. If the beginning of an object is damaged,\n"
        "it is the object before. If the bytes behind an object are damaged, or an object was written after it was\n"
        "freed, it is this object.\n\n"
        "Exit status 4 means that no verdict is possible: nothing is damaged, and the dump lacks pages of slabs."
    ),
    run=run,
    tables=(_FAULTS, _WHO),
    totals=(Column("faults", "count"), Column("guarded_caches", "count", about="with red zones or poison")),
    verdict=True,
    arguments=(
        Argument("--top", metavar="N", type=positive, help="only the first N"),
        Argument("cache", nargs="?", metavar="CACHE", help="only this cache"),
    ),
    requires=(KERNEL,),
    examples=(("slabcheck", "everything"), ("slabcheck kmalloc-64", "one cache")),
)
