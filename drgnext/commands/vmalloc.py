"""The areas of vmalloc, vmap, ioremap and per-CPU memory, summed by the code that asked for them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Schema, Value
from drgnext.kernel.stacks.threads import kernel_threads
from drgnext.kernel.system.reading import Reader
from drgnext.kernel.system.vmareas import areas

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

Key = TypeVar("Key")
_SUMS = (
    Column("areas", "count", width=6),
    Column("bytes", "size", width=6),
    Column("pages", "count", width=8, about="that the areas own"),
)
KINDS = Schema("kinds", "a kind of area", (Column("kind", width=10), *_SUMS))
CALLERS = Schema(
    "callers",
    "the code that asked for areas, the largest first",
    (
        Column("kind", width=10),
        *_SUMS,
        Column("caller", null="the kernel does not note it"),
        Column("address", "address", hidden=True, null="the kernel does not note it"),
        Column("largest", "address", hidden=True, about="where the largest area begins"),
    ),
)


class Sum:
    """Areas of one kind or caller: how many, their bytes, the pages that they own, and the largest one."""

    def __init__(self) -> None:
        self.areas = self.bytes = self.pages = self.largest = 0
        self.at = 0  # the largest one's start

    def add(self, start: int, size: int, pages: int) -> None:
        """Count an area."""
        self.areas, self.bytes, self.pages = self.areas + 1, self.bytes + size, self.pages + pages
        if size > self.largest:
            self.largest, self.at = size, start

    @property
    def cells(self) -> tuple[Value, ...]:
        """Return the cells of _SUMS."""
        return self.areas, self.bytes, self.pages


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the sums of each kind, and of each caller, the largest first."""
    reader = Reader(kernel)
    kinds: dict[str, Sum] = {}
    callers: dict[tuple[str, int], Sum] = {}
    for one in areas(reader):
        for total in (kinds.setdefault(one.kind, Sum()), callers.setdefault((one.kind, one.caller), Sum())):
            total.add(one.start, one.size, one.pages)
    places = kernel_threads(kernel).places
    rows = [
        (kind, *total.cells, places.describe(caller) if caller else None, caller or None, total.at)
        for (kind, caller), total in _sorted(callers.items())
    ]
    of_kinds = [(kind, *total.cells) for kind, total in _sorted(kinds.items())]
    report = Report([KINDS.table(of_kinds), CALLERS.table(rows[: args.top])])
    report.totals.update(
        areas=sum(total.areas for total in kinds.values()),
        bytes=sum(total.bytes for total in kinds.values()),
        pages=sum(total.pages for total in kinds.values()),
        callers=len(rows),
    )
    report.notes += reader.notes
    return report


def _sorted(sums: Iterable[tuple[Key, Sum]]) -> list[tuple[Key, Sum]]:
    return sorted(sums, key=lambda one: (-one[1].bytes, str(one[0])))


TOTALS = (Column("areas", "count"), Column("bytes", "bytes"), Column("pages", "count"), Column("callers", "count"))


COMMAND = Command(
    name="vmalloc",
    summary="areas of vmalloc, vmap, ioremap and per-CPU memory, summed by the code that asked for them",
    description="""These are the areas that /proc/vmallocinfo lists. BYTES counts address space: an area ends with a
guard page, and ioremap maps devices. PAGES counts the pages of memory that the areas own. Areas of per-CPU memory and
of vm_map_ram() own no pages here: memstat -v counts the pages of the former as "per-CPU". The kernel does not note who
called vm_map_ram(). `walk vmap` lists every area.""",
    run=run,
    tables=(KINDS, CALLERS),
    totals=TOTALS,
    arguments=(Argument("--top", metavar="N", type=positive, help="only the N callers with the most bytes"),),
    requires=(KERNEL,),
    examples=(("vmalloc --top 10", "who has most of the vmalloc space"),),
)
