"""What is wrong with the tools, or with a core, before anything else is."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.command import Command
from dmods.progress import Progress
from dmods.report import Column, Report, Table
from dmods.target import Target

COLUMNS = (Column("what"), Column("found"), Column("help"))


def run(target: Optional[Target], _args: argparse.Namespace) -> Report:
    from dmods import coredoctor, doctor  # and what starts programs: gdb, at its start, need not load it

    findings = []
    with Progress("asking gdb and drgn") as bar:
        for finding in doctor.installation():
            findings.append(finding)
            bar.update(0, 0)
    findings += coredoctor.findings(target) if target is not None else ()
    return Report([Table("doctor", COLUMNS, [(one.what, one.found, one.help or None) for one in findings], "advice")])


COMMAND = Command(
    name="doctor",
    summary="whether gdb, drgn and the engine work here, and what a core lacks",
    description=(
        "Which gdb and drgn there are, whether their own Pythons load the engine, and what to type in them; whether\n"
        "the auditor can be preloaded; where this machine's cores go. Of a core (`dmods doctor CORE`; in gdb and drgn\n"
        "the one that is loaded): its program and libraries, symbols, memory that is not in it, its allocators. What\n"
        "begins with -> would help."
    ),
    run=run,
    requires=(),
    optional=True,
    examples=(("doctor", "the tools, and what is loaded"),),
)
