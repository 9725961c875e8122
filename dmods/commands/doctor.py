"""Check the tools, and say what a core lacks."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.base.progress import Progress
from dmods.command import Command
from dmods.report import Column, Report, Schema
from dmods.target import Target

COLUMNS = Schema(
    "doctor",
    "a tool, or a property of the core",
    (Column("what"), Column("found"), Column("help", null="nothing is to be done")),
)


def run(target: Optional[Target], args: argparse.Namespace) -> Report:
    """Return the findings about the machine and, if there is one, the core or the live process."""
    from dmods.machine import doctor
    from dmods.machine.before_crash import process_findings

    findings = []
    with Progress("asking gdb and drgn") as bar:
        for finding in doctor.installation():
            findings.append(finding)
            bar.update(0, 0)
    pid = getattr(args, "pid", None)  # a debugger's front end does not ask for one
    if target is not None and target.path is None:
        pid = target.pid
    if target is not None:
        from dmods.machine.core_doctor import core_findings  # it needs the engine, which may be missing here

        findings += core_findings(target)
    findings += process_findings(pid) if pid is not None else ()
    rows = [(finding.what, finding.found, finding.help or None) for finding in findings]
    return Report([COLUMNS.table(rows, style="advice")])


COMMAND = Command(
    name="doctor",
    summary="whether gdb, drgn and the engine work here, and what a core lacks",
    live=True,
    description=(
        "doctor checks gdb and drgn, whether their Pythons load the engine, and says what to type in them. It checks\n"
        "whether the auditor can be preloaded, and where the kernel writes cores. With a core (`dmods doctor CORE`;\n"
        "in gdb and drgn the loaded one) it lists the program, its libraries and symbols, the memory that the core\n"
        "lacks and why, and the allocators. With the pid of a live process it says, before a crash, what\n"
        "its core would lack: coredump_filter, MADV_DONTDUMP, the size limit, systemd's maximum, free disk; and its\n"
        "limits, open files, unit and container. Lines that begin with -> say what helps."
    ),
    run=run,
    tables=(COLUMNS,),
    requires=(),
    optional=True,
    examples=(("doctor", "the tools, and the core that is loaded"),),
)
