"""Timers that are set."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Optional

from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Schema
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.reading import Reader
from drgnext.kernel.system.timers import timers

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

COLUMNS = Schema(
    "timers",
    "a timer, the next to expire first",
    (
        Column("cpu", "count", width=3),
        Column("expires", width=8, null="it is not known", about="in words: the time until then"),
        Column("clock", width=9),
        Column("timer", "address", width=16),
        Column("function"),
        Column("owner", about="the task that it wakes, or empty"),
        Column("expires_ns", "ns", hidden=True, null="it is not known", about="negative where it is late"),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the timers, the next to expire first."""
    reader = Reader(kernel)
    found = list(timers(reader))
    found.sort(key=lambda one: one.expires if one.expires is not None else 1 << 63)
    rows = [
        (one.cpu, _until(one.expires), one.clock, one.address, one.function, one.owner, one.expires)
        for one in found[: args.top]
    ]
    late = sum(one.expires is not None and one.expires < 0 for one in found)
    return Report([COLUMNS.table(rows)], notes=reader.notes, totals={"timers": len(found), "late": late})


def _until(left: Optional[int]) -> Optional[str]:
    """Return the time until a timer expires; a late one has a minus."""
    return f"-{age_text(-left)}" if left is not None and left < 0 else age_text(left)


COMMAND = Command(
    name="timers",
    summary="timers that are set: when each expires, its function, and the task that it wakes",
    description="""The timers of the wheel ("jiffies") and the high-resolution ones are listed together, the next to
expire first. A timer that is very late was held up: interrupts or softirqs were disabled on its CPU. A panic
itself takes some ticks.""",
    run=run,
    tables=(COLUMNS,),
    totals=(Column("timers", "count"), Column("late", "count")),
    arguments=(Argument("--top", metavar="N", type=positive, help="only the first N"),),
    requires=(KERNEL,),
    examples=(("timers --top 20", "the next twenty"),),
)
