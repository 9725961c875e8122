"""What is wrong with the tools, or with a core, before anything else is."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.command import Command
from dmods.report import Column, Report, Table
from dmods.target import Target

COLUMNS = (Column("what"), Column("found"), Column("help", title="WHAT HELPS"))


def run(target: Optional[Target], _args: argparse.Namespace) -> Report:
    from dmods import doctor  # and what starts programs: gdb, at its start, need not load it

    findings = [*doctor.installation(), *(doctor.core(target) if target is not None else ())]
    return Report([Table("doctor", COLUMNS, [(one.what, one.found, one.help or None) for one in findings])])


COMMAND = Command(
    name="doctor",
    summary="whether gdb, drgn and the engine work here, and what a core lacks",
    description=(
        "Which gdb and drgn there are and whether their own Pythons load the engine; where this machine's cores go;\n"
        "and of a core (`dmods doctor CORE`) its program, and memory that is not in it. Each with what would help."
    ),
    run=run,
    requires=(),
    examples=(("doctor", "the tools alone"),),
)
