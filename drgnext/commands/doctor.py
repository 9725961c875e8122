"""Check the tools, and say where a kernel's symbols and types come from, and what is lost because of that."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.base.progress import Progress
from dmods.command import BARE_KERNEL, KERNEL, Command
from dmods.report import Column, Report, Schema

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

COLUMNS = Schema(
    "doctor",
    "a tool, or a property of the dump",
    (Column("what"), Column("found"), Column("help", null="nothing is to be done")),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the findings about the machine and the kernel's dump."""
    from dmods.machine import doctor
    from drgnext.kernel.dump.findings import kernel_findings

    findings = []
    with Progress("asking gdb and drgn") as bar:
        for finding in doctor.installation():
            findings.append(finding)
            bar.update(0, 0)
    findings += kernel_findings(kernel)
    rows = [(finding.what, finding.found, finding.help or None) for finding in findings]
    return Report([COLUMNS.table(rows, style="advice")])


COMMAND = Command(
    name="doctor",
    summary="whether gdb, drgn and the engine work here, and what a kernel's dump lacks",
    description=(
        "doctor checks what `dmods doctor` checks. Of a kernel's dump it says where symbols and types come from:\n"
        "vmlinux, the kernel's own tables in the dump (kallsyms, BTF), or files of --symbols and --btf. It says what\n"
        "is lost because of that, which modules have no types, and what the dump lacks. Lines that begin with -> say\n"
        "what helps."
    ),
    run=run,
    tables=(COLUMNS,),
    requires=(KERNEL, BARE_KERNEL),
    examples=(("doctor", "the tools, and the dump that is open"),),
)
