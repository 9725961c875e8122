"""Interrupts and softirqs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Optional

from dmods.command import KERNEL, Argument, Command
from dmods.report import Column, Report, Schema
from drgnext.kernel.system.interrupts import interrupts, of_the_machine, softirqs
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

DEVICES = Schema(
    "devices",
    "an interrupt of a device",
    (
        Column("irq", width=4, about="its number"),
        Column("total", "count", width=11),
        Column("most_on", "count", title="MOST ON CPU", null="it never came"),
        Column("chip", width=12),
        Column("hwirq", "count"),
        Column("names", about="of the handlers"),
        Column("counts", "counts", hidden=True, about="on each CPU"),
        Column("handlers", "texts", hidden=True, about="functions"),
        Column("irq_desc", "address", hidden=True),
    ),
)
SOFTIRQS = Schema(
    "softirqs",
    "a softirq",
    (
        Column("name", width=8),
        Column("total", "count", width=11),
        Column("most_on", "count", title="MOST ON CPU", null="it never came"),
        Column("counts", "counts", hidden=True, about="on each CPU"),
    ),
    when="where there are some",
)

MACHINE = Schema("machine", "an interrupt that has no device", SOFTIRQS.columns, when="on x86, where there are some")


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the interrupts of devices and of the machine, and the softirqs."""
    reader = Reader(kernel)
    cpus = reader.cpus()

    def most(counts: list[int]) -> Optional[int]:
        """Return the CPU with most of them, None if no CPU has any."""
        return cpus[counts.index(max(counts))] if any(counts) else None

    rows = [
        (
            *(one.name, sum(one.counts), most(one.counts), one.chip, one.hardware, ", ".join(one.names)),
            *(one.counts, one.handlers, one.address),
        )
        for one in interrupts(reader)
        if args.all or one.names or any(one.counts)
    ]
    report = Report([DEVICES.table(rows)])
    for schema, counted in ((MACHINE, of_the_machine(reader)), (SOFTIRQS, softirqs(reader))):
        cells = [(each, sum(counts), most(counts), counts) for each, counts in counted]
        if cells:
            report.tables.append(schema.table(cells, title=f"{schema.name}:"))
    report.totals.update(cpus=len(cpus), interrupts=len(rows))
    report.notes += reader.notes
    return report


COMMAND = Command(
    name="irq",
    summary="interrupts and softirqs: how often each came, on which CPU most, and who handles it",
    description="""--json has the count on each CPU and the handlers' functions. The table "machine" has x86's own:
LOC is the timer, RES a request to schedule, CAL a function call, TLB a shootdown, NMI a non-maskable interrupt.""",
    run=run,
    tables=(DEVICES, MACHINE, SOFTIRQS),
    totals=(Column("cpus", "count"), Column("interrupts", "count")),
    arguments=(Argument("-a", "--all", action="store_true", help="also those that never came and have no handler"),),
    requires=(KERNEL,),
    examples=(("irq", "what /proc/interrupts showed"),),
)
