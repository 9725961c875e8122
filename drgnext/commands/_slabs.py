"""Helpers of the commands on slab objects: the objects with a progress bar, and records in mdb's layouts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Optional

from dmods.base.progress import Progress
from dmods.commands._records import HEAD, stack_table, stack_values
from dmods.errors import UsageError, UserError
from dmods.report import Table, Value
from drgnext.expressions import value_of, value_of_variable
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.pages.frame_ranges import count_pages
from drgnext.kernel.pages.memmap import page_array
from drgnext.kernel.slabs.caches import SlabCacheInfo
from drgnext.kernel.slabs.callers import KernelCallers
from drgnext.kernel.slabs.objects import Object, SlabObjects, slab_objects
from drgnext.kernel.slabs.percpu_symbols import PerCpuSymbols
from drgnext.kernel.slabs.tracks import SlabRecord, Tracks

LARGE = "kmalloc-large"  # the cache of a block of kmalloc that has its own pages
_WORD = (1 << 64) - 1


def objects_of(kernel: Kernel) -> SlabObjects:
    """Return the slab objects, with a progress bar while they are found."""
    array = page_array(kernel)
    total = count_pages(list(array.ranges)) * array.layout["size"]
    with Progress("reading the page array") as bar:
        return slab_objects(kernel, lambda done: bar.update(done, total))


def callers_asked(kernel: Kernel, args: argparse.Namespace, lines: bool = False) -> KernelCallers:
    """Return the callers that CALLER_ARGUMENTS ask for."""
    return KernelCallers(kernel, args.skip, args.all_frames, lines=lines)


def cache_name(cache: Optional[SlabCacheInfo]) -> str:
    """Return the name of a cache."""
    return cache.name if cache is not None else LARGE


def address_asked(kernel: Kernel, text: str) -> int:
    """Return the address that a user wrote: a number, a symbol, symbol+offset, or an expression of drgn's prompt.

    Raises UsageError, also for a per-CPU variable, which has many addresses.
    """
    value = value_of_variable(text, kernel.prog, kernel.variables)
    if value is not None:
        return value & _WORD
    base, plus, more = text.partition("+")
    try:
        return int(text, 16)
    except ValueError:
        pass
    if PerCpuSymbols(kernel.prog).variable(text) is not None:
        raise UsageError(f"{text} is a per-CPU variable, and each CPU has its own", f"`whatis {text}` lists them")
    try:
        return int(kernel.prog.symbol(base).address) + (int(more, 0) if plus else 0)
    except (LookupError, ValueError):
        value = value_of(text, kernel.prog, kernel.variables)
    if value is None:
        raise UsageError(
            f"{text!r} is not an address", "give 0x..., a symbol, symbol+offset, or an expression of drgn's"
        )
    return value & _WORD


def record_named(slabs: SlabObjects, tracks: Tracks, address: int) -> SlabRecord:
    """Return the record that a user means: the track at the address, or that of the object there.

    For a free object it is the free. Raises UsageError and UserError.
    """
    if not tracks.any:
        tracks.require()
    guarded = slabs.guarded.recorded_at(address)
    found: Optional[Object] = slabs.object_at(address if guarded is None else guarded.address)
    if found is None:
        raise UsageError(
            f"{address:#x} is neither a bufctl nor an address in a slab object",
            "give what findleaks shows as BUFCTL, or an address in an object; `walk bufctl` lists all",
        )
    both = [tracks.of(found, freed) for freed in (False, True)]
    exact = next((one for one in both if one is not None and one.bufctl == address), None)
    record = exact or both[found.free]
    if record is None:
        raise UserError(
            f"the object at {found.address:#x} of {cache_name(found.cache)} has no record",
            "its cache keeps none (SLAB_NOLEAKTRACE, or slub_debug names other caches), or it was never used",
        )
    return record


def event(record: SlabRecord) -> str:
    """Return "live" for an allocation, "freed" for a free."""
    return "freed" if record.freed else "live"


def brief_row(callers: KernelCallers, record: SlabRecord) -> tuple[Value, ...]:
    """Return the cells of dmods.commands._records.BRIEF."""
    caller = callers.caller(record.stack).text
    cells = (record.bufctl, record.address, record.time, record.pid, caller, record.requested, event(record))
    return (*cells, *stack_values(callers, record.stack))


def audit(slabs: SlabObjects, tracks: Tracks, callers: KernelCallers, *records: SlabRecord) -> Iterator[Table]:
    """Yield the head and the stack of each record for text, and one table of all for JSON."""
    rows = [_audit_row(slabs, tracks, callers, record) for record in records]
    yield HEAD.table(rows, only="json")
    for record, row in zip(records, rows):
        yield HEAD.table([row], fold=4, only="text")
        yield stack_table(callers, record.stack)


def _audit_row(slabs: SlabObjects, tracks: Tracks, callers: KernelCallers, record: SlabRecord) -> tuple[Value, ...]:
    allocated: tuple[Value, ...] = (None,) * 5
    if record.freed:
        found = slabs.object_at(record.address)
        first = tracks.of(found, False) if found is not None else None
        if first is not None:
            allocated = (first.pid, None, None, *stack_values(callers, first.stack))
    return (
        record.bufctl,
        record.address,
        record.time,
        record.pid,
        None,
        cache_name(record.cache),
        0,
        0,
        callers.caller(record.stack).text,
        record.requested,
        event(record),
        None,
        None,
        *stack_values(callers, record.stack),
        *allocated,
    )


def seconds(ns: int) -> str:
    """Return a time in words: "3.5 s"."""
    return f"{ns / 1e9:.1f} s"


def sentence(callers: KernelCallers, record: SlabRecord) -> str:
    """Return an event in words: "main+0x12, pid 17, CPU 1, 3.5 s before the dump"."""
    where = callers.caller(record.stack).text
    return f"{where}, pid {record.pid}, CPU {record.cpu}, {seconds(record.age)} before the dump"
