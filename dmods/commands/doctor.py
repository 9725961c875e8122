"""Check the tools, and say what a core lacks."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.base.progress import Progress
from dmods.command import Command
from dmods.report import Column, Report, Table
from dmods.target import Target

COLUMNS = (Column("what"), Column("found"), Column("help"))


def run(target: Optional[Target], _args: argparse.Namespace) -> Report:
    """Return the findings about the machine and, if there is one, the core."""
    from dmods.machine import doctor
    from dmods.machine.core_doctor import core_findings

    findings = []
    with Progress("asking gdb and drgn") as bar:
        for finding in doctor.installation():
            findings.append(finding)
            bar.update(0, 0)
    findings += core_findings(target) if target is not None else ()
    rows = [(finding.what, finding.found, finding.help or None) for finding in findings]
    return Report([Table("doctor", COLUMNS, rows, "advice")])


COMMAND = Command(
    name="doctor",
    summary="whether gdb, drgn and the engine work here, and what a core lacks",
    description=(
        "doctor checks gdb and drgn, whether their Pythons load the engine, and says what to type in them. It checks\n"
        "whether the auditor can be preloaded, and where the kernel writes cores. With a core (`dmods doctor CORE`;\n"
        "in gdb and drgn the loaded one) it lists the program, its libraries and symbols, memory that is not in the\n"
        "core, and the allocators. Lines that begin with -> say what helps."
    ),
    run=run,
    requires=(),
    optional=True,
    examples=(("doctor", "the tools, and the core that is loaded"),),
)
