"""Say what lies at an address of a kernel, and who points to it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Optional

from dmods.base.dataclass import replace
from dmods.base.hexdump import ROW
from dmods.base.progress import Progress
from dmods.command import KERNEL, Argument, Command, positive
from dmods.commands._records import stack_table, stack_values
from dmods.commands._whatis_tables import ANSWER, BYTES, DUMPED, HOLDERS, answer_table, bytes_table, holders_table
from dmods.process.shapes import STACK_COLUMNS, holder_value, stack_columns
from dmods.report import Column, Report, Schema, Table, Value
from drgnext.commands._slabs import address_asked, cache_name, objects_of, sentence
from drgnext.expressions import value_of_variable
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.callers import KernelCallers
from drgnext.kernel.slabs.leaks import EVIDENCE, kernel_leaks, marks_large
from drgnext.kernel.slabs.locate import Places
from drgnext.kernel.slabs.objects import FREE_NAMES, LEAKED, OWN, PLAIN, SET_ASIDE, UNSURE, Object, SlabObjects
from drgnext.kernel.slabs.percpu_symbols import PerCpuSymbols, PerCpuVariable
from drgnext.kernel.slabs.tracks import Tracks

_OBJECT = Schema(
    "object",
    "the slab object",
    (
        Column("object", "address", title="object"),
        Column("size", "bytes", title="  bytes"),
        Column("offset", title="  offset of the address in it", about="hexadecimal"),
        Column("cache", title="  cache", null="it is no object of kmalloc"),
        Column("slab", "address", title="  slab"),
        Column("slot", "count", title="  number in its slab"),
        Column("state", title="  state"),
        Column("requested", "bytes", title="  bytes asked for", null="nothing is recorded"),
        Column("allocated_by", title="  allocated by", null="nothing is recorded"),
        Column("freed_by", title="  freed by", null="it is not free, or nothing is recorded"),
        Column("bufctl", "address", title="  its record (bufctl)", null="nothing is recorded"),
        *STACK_COLUMNS,
        *stack_columns("free_", "it is not free, or nothing is recorded"),
    ),
    when="where one is there",
)

_PER_CPU = Schema(
    "percpu",
    "the variable of a CPU",
    (
        Column("cpu", "count"),
        Column("address", "address", width=16),
        Column("bytes", "bytes", hidden=True, null="it is not known"),
    ),
    when="for a per-CPU variable",
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return a description of the address."""
    at_prompt = value_of_variable(args.address, kernel.prog, kernel.variables)
    variable = PerCpuSymbols(kernel.prog).variable(args.address) if at_prompt is None else None
    if variable is not None:
        return _per_cpu(variable)
    address = address_asked(kernel, args.address)
    slabs = objects_of(kernel)
    report = Report(notes=list(slabs.notes))
    orphans: dict[int, str] = {}
    doubt = not marks_large(slabs)
    if not kernel.live:  # before this, a leaked object is called allocated
        with Progress("searching for pointers") as bar:
            total = sum(one.pages for one in slabs.usage()) << slabs.pages.layout["page_bits"]
            leaks = kernel_leaks(kernel, lambda done: bar.update(done, max(done, total)))
        report.notes += leaks.notes
        doubt = bool(leaks.large_doubt)
        large = slabs.object_at(address)
        if large is not None and large.cache is None and doubt:
            report.notes.append(leaks.large_doubt)
        orphans = {orphan.address: orphan.what for orphan in leaks.orphans}
    places = Places(slabs, doubt)
    found = places.at(address)
    if places.is_freed(address):
        report.notes.append(
            f"{args.address} lies where the kernel had its initialization code or data, which it has freed: no symbol "
            "there has a meaning"
        )
    sentences = [(place.kind, f"{address:#x} is {place.text}") for place in found]
    sentences = sentences or [("nothing", f"{address:#x} is not mapped in the kernel")]
    report.tables.append(answer_table(address, sentences))
    one = slabs.object_at(address)
    if one is not None:
        report.tables += _object(kernel, slabs, one, address, orphans)
    if found:
        least = address // ROW * ROW + ROW  # the address may lie behind the object, in its tracks
        end = max(one.address + one.size, least) if one is not None else None
        report.tables.append(bytes_table(slabs.pages.read, address, end, args.dump))
        report.tables.append(_pointed_to_by(places, one, address, args.most, report))
    return report


def _per_cpu(variable: PerCpuVariable) -> Report:
    """Return where each CPU has its own instance of a variable."""
    size = f" of {variable.size} bytes" if variable.size else ""
    lies = "lies in" if "+" in variable.name else "is"
    sentence = f"{variable.name} {lies} a per-CPU variable{size}: each CPU has its own"
    said = ANSWER.table([("percpu", sentence)], ANSWER.columns[1:], style="plain")
    rows = [(cpu, address, variable.size or None) for cpu, address in variable.addresses]
    return Report([said, _PER_CPU.table(rows)], totals={"cpus": len(rows)})


def _object(kernel: Kernel, slabs: SlabObjects, one: Object, address: int, orphans: dict[int, str]) -> Iterator[Table]:
    """Yield the object's record, and the stacks of who allocated and freed it."""
    tracks = Tracks(slabs)
    allocated = tracks.of(one, False) if tracks.any else None
    freed = tracks.of(one, True) if tracks.any and one.free else None
    callers = KernelCallers(kernel)
    stack: tuple[Value, Value] = (None, None)
    free_stack: tuple[Value, Value] = (None, None)
    if allocated is not None:
        stack = stack_values(callers, allocated.stack)
    if freed is not None:
        free_stack = stack_values(callers, freed.stack)
    state = orphans.get(one.address)
    state = f"held by nobody, by design ({state})" if state else _state(one, not kernel.live)
    offset = address - one.address
    last = freed or allocated
    row: tuple[Value, ...] = (
        one.address,
        one.size,
        f"{offset:#x}",
        _cache(slabs, one),
        one.slab,
        one.slot,
        state,
        allocated.requested if allocated is not None else None,
        sentence(callers, allocated) if allocated is not None else None,
        sentence(callers, freed) if freed is not None else None,
        last.bufctl if last is not None else None,
        *stack,
        *free_stack,
    )
    columns = [replace(column, hidden=column.hidden or value is None) for column, value in zip(_OBJECT.columns, row)]
    yield _OBJECT.table([row], columns, style="record")
    if freed is not None:
        yield stack_table(callers, freed.stack, "freed", "freed by", 8)
    if allocated is not None:
        yield stack_table(callers, allocated.stack, "allocated", "allocated by", 8)


def _cache(slabs: SlabObjects, one: Object) -> Optional[str]:
    """Return the name of the object's cache, None for pages that kmalloc did not give."""
    if one.cache is None and slabs.engine.only_paged(one.address):
        return None
    return cache_name(one.cache)


def _state(one: Object, searched: bool) -> str:
    """Return the state of an object in words."""
    if one.free:
        return FREE_NAMES[one.state]
    if one.state == LEAKED:
        return "leaked" if searched else "allocated"
    if one.state == SET_ASIDE:
        return "held only by what the kernel dropped on purpose"
    if one.state == UNSURE:
        return "allocated or free: nothing in the dump points to it, and the dump lacks pages that may"
    if one.state == OWN:
        return "allocated, a sheaf of the slab allocator"
    return "allocated" if one.state == PLAIN else f"allocated, held by {EVIDENCE[one.state]}"


def _pointed_to_by(places: Places, one: Optional[Object], address: int, most: int, report: Report) -> Table:
    """Return what points into the object, or to exactly the address if it lies in no object."""
    slabs = places.slabs
    start, end = (one.address, one.address + one.size) if one is not None else (address, address + 1)
    with Progress("searching for pointers") as bar:
        total = sum(count.pages for count in slabs.usage()) << slabs.pages.layout["page_bits"]
        found, count = slabs.engine.holders(start, end, max(most, 1), lambda done: bar.update(done, max(done, total)))
    if count > len(found):
        report.notes.append(f"{count} words of memory point there; {len(found)} are shown (-n shows more)")
    rows = [_holder(places, one, start, holder) for holder in found]
    return holders_table(rows)


def _holder(places: Places, one: Optional[Object], start: int, found: tuple[int, int, int]) -> tuple[Value, ...]:
    """Return the cells of HOLDERS for (where, value, state for the class of evidence)."""
    at, value, state = found
    own = places.own_address(at)
    offset = value - start if state in EVIDENCE and value >= start else 0
    inside = one is not None and one.address <= at < one.address + one.size
    note = "points to itself" if inside else "" if state == PLAIN else EVIDENCE[state].removesuffix(" only")
    where = places.brief(at)
    kinds = places.at(own)
    kind = kinds[0].kind if kinds else "nothing"
    return own, offset, None, where, note, holder_value(own, "live", kind, offset=offset, where=where)


COMMAND = Command(
    name="whatis",
    summary="what an address is: slab object, page, symbol, stack, per-CPU variable, vmap area; who points to it",
    description=(
        "For a slab object, whatis shows its cache and the offset in the object. It says whether the object is\n"
        "allocated, free (and on which list) or leaked. With slub_debug=U it says who allocated it. A free object\n"
        "keeps the records of who had allocated and who freed it. Its bytes follow, and the places of pointers to\n"
        "it. For a per-CPU variable, it shows the address of each possible CPU's copy."
    ),
    run=run,
    tables=(ANSWER, _PER_CPU, _OBJECT, BYTES, HOLDERS),
    totals=(Column("cpus", "count", when="for a per-CPU variable"),),
    arguments=(
        Argument("-n", "--most", type=positive, default=8, metavar="N", help="show up to N pointers to it (8)"),
        Argument("--dump", type=positive, metavar="N", help=f"show N bytes ({DUMPED}, or as many as the object has)"),
        Argument("address", metavar="ADDR", help="0x..., a symbol, symbol+offset"),
    ),
    requires=(KERNEL,),
    examples=(
        ("whatis 0xffff888003214000", "the object that the address lies in"),
        ("whatis init_task", "a variable of the kernel"),
        ("whatis runqueues", "a per-CPU variable: where each CPU has its own"),
    ),
)
