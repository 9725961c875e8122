"""List the cores that this machine keeps."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.base.times import utc_minute
from dmods.command import Command
from dmods.corefile.stored import stored_cores
from dmods.process import signals
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

COLUMNS = (
    Column("time", title="TIME (UTC)"), Column("program"), Column("pid"), Column("signal"), Column("size", "size"),
    Column("state"), Column("keeper"), Column("file"), Column("seconds", hidden=True), Column("whole", hidden=True),
)  # fmt: skip
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
    return Report([Table("cores", COLUMNS, rows)], totals={"cores": len(rows)}, notes=notes)


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
    requires=(),
    examples=(("cores", "what can be looked at"), ("cores --json", "the same for a script")),
)
