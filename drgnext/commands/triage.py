"""Say what happened to a kernel: the verdict first, on one screen or as an HTML report."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dmods.command import BARE_KERNEL, KERNEL, Command
from dmods.report import Report
from dmods.triage.columns import TABLES, TOTALS
from dmods.triage.details import Detail, details
from dmods.triage.options import ARGUMENTS, DESCRIPTION, EXAMPLES, finished
from drgnext.commands._details import kernel_parts
from drgnext.triage.bare import triage_bare
from drgnext.triage.kernel import triage_kernel

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the report of all checks. It is written to files where that is asked for."""
    if kernel.lacking is not None:
        found = triage_bare(kernel, kernel.lacking)
    else:
        found = triage_kernel(kernel, args.checks, args.seconds, args.redact)

    def parts() -> Iterable[Detail]:
        """Return what other commands say. Private: without the log, which has what programs wrote."""
        whole = kernel_parts(kernel) if kernel.lacking is None else []
        return details(
            [each for each in whole if not args.redact or each.command != "dmesg"], args.redact, args.seconds
        )

    return finished(found, "kernel", kernel, args, parts)


COMMAND = Command(
    name="triage",
    summary="what happened to this kernel: a verdict on one screen, or a report in one HTML file",
    description=DESCRIPTION,
    run=run,
    tables=TABLES,
    totals=TOTALS,
    arguments=ARGUMENTS,
    requires=(KERNEL, BARE_KERNEL),
    examples=EXAMPLES,
)
