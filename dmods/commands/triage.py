"""Say what happened to a process: the verdict first, on one screen or as an HTML report."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from dmods.base.dataclass import replace
from dmods.command import Command
from dmods.commands._details import process_parts
from dmods.report import Column, Report, Schema
from dmods.target import Target
from dmods.triage.columns import TABLES, TOTALS
from dmods.triage.details import Detail, details
from dmods.triage.options import ARGUMENTS, DESCRIPTION, EXAMPLES, finished
from dmods.triage.private import redacted
from dmods.triage.process import thread_names, triage_process


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the report of all checks. It is written to files where that is asked for."""
    found = triage_process(target, args.checks, args.seconds, args.redact)

    def parts() -> Iterable[Detail]:
        made = list(details(process_parts(target), args.redact, args.seconds))
        return redacted(made, thread_names(target)) if args.redact else made

    return finished(found, "process", target, args, parts)


def _tables() -> Sequence[Schema]:
    from dmods.triage.fleet import report as fleet  # SQLite, which one dump does not need

    return (*TABLES, *fleet.TABLES)


def _totals() -> Sequence[Column]:
    from dmods.triage.fleet import report as fleet

    one = (replace(total, when=total.when or "for one dump") for total in TOTALS)
    return (*one, *fleet.TOTALS)


COMMAND = Command(
    name="triage",
    summary="what happened to this process: a verdict on one screen, or a report in one HTML file",
    description=DESCRIPTION,
    run=run,
    tables=_tables,
    totals=_totals,
    arguments=ARGUMENTS,
    examples=EXAMPLES,
)
