"""List the cores that this machine keeps."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.base.times import utc_minute
from dmods.command import Command
from dmods.corefile.stored import stored_cores
from dmods.process import signals
from dmods.report import Column, Report, Schema, Value
from dmods.target import Target

COLUMNS = Schema(
    "cores",
    "a core that systemd, apport, abrt or the current folder has, newest first",
    (
        Column("time", title="TIME (UTC)", about="UTC, to the minute"),
        Column("program", null="it is not known"),
        Column("pid", "count", null="it is not known"),
        Column("signal", null="it is not known"),
        Column("size", "size", about="of the file that has the core"),
        Column("state", null="it is not known", about="whole or cut"),
        Column("keeper"),
        Column("file"),
        Column("seconds", "seconds", hidden=True, about="since 1970"),
        Column("whole", "flag", hidden=True, null="it is not known"),
    ),
)
_STATE = {True: "whole", False: "cut", None: None}


def run(_target: Optional[Target], _args: argparse.Namespace) -> Report:
    """Return the cores, newest first."""
    found = stored_cores()
    rows: list[tuple[Value, ...]] = [
        (
            utc_minute(each.time), each.program, each.pid,
            signals.name(each.signal) if each.signal is not None else None,
            each.size, _STATE[each.whole], each.keeper, each.path, each.time, each.whole,
        )
        for each in found
    ]  # fmt: skip
    notes = []
    if not found:
        notes.append(
            "neither systemd, apport, abrt nor the current folder has a core that you can see; "
            "`dmods doctor` says where the kernel writes cores"
        )
    return Report([COLUMNS.table(rows)], totals={"cores": len(rows)}, notes=notes)


COMMAND = Command(
    name="cores",
    summary="the cores that systemd, apport, abrt and the current folder have",
    description=(
        "The newest core comes first. Give its file to any command; or `coredump:PID`, `coredump:NAME` for the newest\n"
        "core of a program, and `coredump:` for the newest of all. STATE is known for plain cores, and for other\n"
        "cores if the journal has it. If systemd cut a core and compressed it, dmods sees the cut only when it opens\n"
        "the core. DMODS_CORES_ROOT=DIR looks below another root: the disk of another machine."
    ),
    run=run,
    tables=(COLUMNS,),
    totals=(Column("cores", "count"),),
    requires=(),
    examples=(("cores", "what can be looked at"), ("cores --json", "the same for a script")),
)
