"""Compare a kernel's dump with an older one: which kind of page, which slab cache and which process grew."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from dmods.base.sizes import human_size
from dmods.command import KERNEL, Argument, Command, positive
from dmods.errors import UsageError
from dmods.report import Column, Report, Schema, Table, Value
from drgnext.commands._memory_use import MemoryUse, Program, Slabs, memory_use, same_boot
from drgnext.kernel.dump.older import open_older
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.pages.kinds import CACHELIST, FREELIST, KINDS
from drgnext.kernel.system.ages import age_text

_USUAL = 10  # rows of a table that are shown without --top
_WORTH = 0.01  # of all memory: what grew by less is no growth of the machine
_PART = 0.1  # of what grew: a smaller part is not named

_SIZES = (
    Column("growth_bytes", "bytes", width=13, title="GROWTH"),
    Column("old_bytes", "bytes", width=13, title="OLD"),
    Column("now_bytes", "bytes", width=13, title="NOW"),
)
_KINDS = Schema(
    "kinds",
    "a kind of page that changed",
    (*_SIZES, Column("kind"), Column("name", hidden=True, about="a name for scripts")),
)
_CACHES = Schema(
    "caches",
    "a slab cache that changed",
    (*_SIZES, Column("growth_objects", "count", width=10, title="OBJECTS"), Column("cache")),
)
_PROCESSES = Schema(
    "processes",
    "a process that changed",
    (
        *_SIZES,
        Column("pid", "count", width=7, null="the dumps are of different runs: processes are compared by name"),
        Column("name"),
        Column("state", title="", null="it is in both dumps", about="new or gone"),
    ),
)
_FINDINGS = Schema(
    "findings",
    "a sentence about what grew",
    (Column("finding"), Column("bytes", "bytes", hidden=True, about="0 where nothing grew")),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return what grew from the oldest of the dumps to the one that is open."""
    if len(args.base) != 1:
        raise UsageError("growth compares two dumps", "dmods growth OLD.vmcore NEW.vmcore -s VMLINUX")
    (older,) = args.base
    if kernel.path is not None and os.path.realpath(older) == os.path.realpath(kernel.path):
        raise UsageError("a dump is compared with itself", "name an older dump of the same machine")
    base = open_older(older)
    report = compared(memory_use(base), memory_use(kernel), args.top)
    report.notes += [f"{older}: {note}" for note in dict.fromkeys(base.notes) if note not in kernel.notes]
    return report


def compared(old: MemoryUse, now: MemoryUse, top: Optional[int] = None) -> Report:
    """Return what grew, the first ``top`` rows of each table."""
    same = same_boot(old, now)
    kinds = _kinds(old, now)
    caches, processes = _caches(old, now), _processes(old, now, same)
    report = Report([_FINDINGS.table(list(_findings(now.total, kinds, caches, processes)), style="plain")])
    report.tables.append(_table(_KINDS, kinds, top, "Pages by kind"))
    report.tables.append(_table(_CACHES, caches, top, "Slab caches"))
    report.tables.append(_table(_PROCESSES, processes, top, "Processes, memory and swap"))
    report.notes += _times(old, now, same)
    for name, one in (("the older dump", old), ("the dump", now)):
        if not one.exact:
            report.notes.append(f"{name} lacks a part of the lists of free objects: of its OBJECTS, some may be free")
    report.notes += dict.fromkeys([*now.notes, *(f"the older dump: {note}" for note in old.notes)])
    report.totals.update(
        total_bytes=now.total,
        old_total_bytes=old.total,
        same_boot=same,
        exact=old.exact and now.exact,
        kinds=len(kinds),
        caches=len(caches),
        processes=len(processes),
    )
    return report


def _table(schema: Schema, rows: list[tuple[Value, ...]], top: Optional[int], title: str) -> Table:
    """Return the first rows that changed, and how many more there are."""
    shown = rows[: top or _USUAL]
    footer = [f"{len(rows) - len(shown)} more (--top {len(rows)})"] if len(shown) < len(rows) else []
    return schema.table(shown, title=title if rows else f"{title}: nothing changed", footer=footer)


def _kinds(old: MemoryUse, now: MemoryUse) -> list[tuple[Value, ...]]:
    """Return the kinds of pages that changed, those that grew most first."""
    rows: list[tuple[Value, ...]] = []
    for name, kind in KINDS.items():
        before, after = old.kinds.get(name, 0), now.kinds.get(name, 0)
        if before != after:
            rows.append((after - before, before, after, kind.title, name))
    return sorted(rows, key=_by_growth)


def _caches(old: MemoryUse, now: MemoryUse) -> list[tuple[Value, ...]]:
    """Return the slab caches that changed, those that grew most first."""
    rows: list[tuple[Value, ...]] = []
    for name in dict.fromkeys([*now.caches, *old.caches]):
        before, after = old.caches.get(name, Slabs(0, 0)), now.caches.get(name, Slabs(0, 0))
        if before != after:
            rows.append((after.bytes - before.bytes, before.bytes, after.bytes, after.objects - before.objects, name))
    return sorted(rows, key=lambda row: (_by_growth(row), -_number(row[3])))


def _processes(old: MemoryUse, now: MemoryUse, same: bool) -> list[tuple[Value, ...]]:
    """Return the processes that changed, are new, or have gone. Those of another run are compared by name."""
    rows: list[tuple[Value, ...]] = []
    if same:
        pairs = {key: (old.programs.get(key), now.programs.get(key)) for key in (*now.programs, *old.programs)}
        for (pid, _start), (before, after) in pairs.items():
            rows += _process(pid, before, after)
    else:
        sums = _by_name(old.programs), _by_name(now.programs)
        for name in dict.fromkeys([*sums[1], *sums[0]]):
            rows += _process(None, sums[0].get(name), sums[1].get(name))
    return sorted(rows, key=_by_growth)


def _process(pid: Optional[int], before: Optional[Program], after: Optional[Program]) -> list[tuple[Value, ...]]:
    one = after or before
    sizes = [each.bytes if each is not None else 0 for each in (before, after)]
    if one is None or (sizes[0] == sizes[1] and before is not None and after is not None):
        return []
    state = "new" if before is None else "gone" if after is None else None
    return [(sizes[1] - sizes[0], *sizes, pid, one.name, state)]


def _by_name(programs: Mapping[tuple[int, int], Program]) -> dict[str, Program]:
    sums: dict[str, int] = {}
    for one in programs.values():
        sums[one.name] = sums.get(one.name, 0) + one.bytes
    return {name: Program(name, size) for name, size in sums.items()}


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _by_growth(row: tuple[Value, ...]) -> int:
    return -_number(row[0])


def _findings(
    total: int,
    kinds: Sequence[tuple[Value, ...]],
    caches: Sequence[tuple[Value, ...]],
    processes: Sequence[tuple[Value, ...]],
) -> Iterator[tuple[Value, ...]]:
    """Yield a sentence for each kind of page that grew much, and for what is behind it."""
    grown = [
        row
        for row in kinds
        if KINDS[str(row[4])].bucket not in (CACHELIST, FREELIST) and _number(row[0]) >= _WORTH * total
    ]
    if not grown:
        yield f"no kind of page grew by {_WORTH:.0%} of all memory ({human_size(int(total * _WORTH))})", 0
    for row in grown:
        size, name = _number(row[0]), str(row[4])
        behind = ""
        if name == "slab":
            behind = _behind(
                [(f"{each[4]} ({_number(each[3]):+,} objects)", _number(each[0])) for each in caches], size
            )
        elif name == "anon":
            behind = _behind([(f"{each[4]} ({_pid(each)})", _number(each[0])) for each in processes], size)
        yield f"{row[3]} grew by {human_size(size)}{behind}", size


def _behind(parts: Sequence[tuple[str, int]], size: int) -> str:
    """Return the parts that grew most, in words; "" where none is a tenth of the growth."""
    named = [f"{what} by {human_size(grown)}" for what, grown in parts[:3] if grown >= _PART * size]
    return f": {', '.join(named)}" if named else ""


def _pid(row: Sequence[Value]) -> str:
    pid = f"pid {row[3]}" if row[3] is not None else "all of that name"
    return f"{pid}, {row[5]}" if row[5] else pid


def _times(old: MemoryUse, now: MemoryUse, same: bool) -> Iterator[str]:
    """Yield notes on the time between the dumps."""
    if not same:
        yield "the dumps are of different runs of the machine: processes are compared by their names"
    elif old.uptime is not None and now.uptime is not None:
        passed = now.uptime - old.uptime
        if passed < 0:
            yield f"the dumps are in the wrong order: the first is {age_text(-passed)} younger"
        else:
            yield f"{age_text(passed)} passed between the dumps"
    if old.total != now.total:
        yield f"the machine has {human_size(now.total)} of memory, and had {human_size(old.total)}"


TOTALS = (
    Column("total_bytes", "bytes", about="of the machine"),
    Column("old_total_bytes", "bytes"),
    Column("same_boot", "flag"),
    Column("exact", "flag", about="false where a dump lacks a part of the lists of free objects"),
    Column("kinds", "count"),
    Column("caches", "count"),
    Column("processes", "count"),
)


COMMAND = Command(
    name="growth",
    summary="compare with an older dump of the machine: which kind of page, slab cache and process grew",
    description=(
        "In the shell give the older dump first: `dmods growth old.vmcore new.vmcore -s VMLINUX`. In drgn the open\n"
        "dump is the newer one. Sentences say what grew by 1% of all memory, and which processes or caches grew with\n"
        "it. The tables have the kinds of pages (as `memstat -v`), the slab caches (as `kmastat`; OBJECTS are those\n"
        "in use) and the processes (RSS and swap, as `ps`) that changed, the largest growth first. OLD + GROWTH = NOW\n"
        "to the byte.\n\n"
        "A process is the same in both if its pid and its start are. Dumps of different runs of a machine are\n"
        "compared by the names of the processes. Both dumps take the same -s and --btf."
    ),
    run=run,
    tables=(_FINDINGS, _KINDS, _CACHES, _PROCESSES),
    totals=TOTALS,
    compares=True,
    arguments=(
        Argument("base", nargs="*", metavar="DUMP", help="the older dump (in the shell: the newer one)"),
        Argument("--top", metavar="N", type=positive, help=f"the first N rows of each table (default: {_USUAL})"),
    ),
    requires=(KERNEL,),
    examples=(("growth old.vmcore", "what grew since old.vmcore was taken"),),
)
