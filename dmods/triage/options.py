"""The arguments of `triage`, for both kinds of dump, and what they ask for."""

from __future__ import annotations

import argparse
import io
import os
import re
from collections.abc import Iterable
from typing import Callable, Optional

from dmods.base.dataclass import replace
from dmods.command import Argument, seconds
from dmods.errors import UsageError, UserError
from dmods.output import json as json_form
from dmods.output.streaming import Subject
from dmods.report import Report
from dmods.triage.answer import Line, Triage, Unknown, left_out
from dmods.triage.details import Detail
from dmods.triage.report import triage_report

DESCRIPTION = (
    "Runs every check on the dump. The verdict comes first: at most three findings, each with how sure it is, its\n"
    "evidence, what to do, and what to type next. Then follow what holds the most memory of a process, the crash,\n"
    "where memory went (the parts add up to 100 %), all further findings, and what could not be known. A healthy\n"
    "process has no finding. Its largest holder is named all the same, and is a suspect if `suspects` says so.\n"
    "The text fits on a screen of 80x24 if possible. Its last line says what it leaves out, and -v shows all.\n"
    "Each check has its own time. A check that takes longer, or that cannot run, says so in one line."
)
EXAMPLES = (
    ("triage", "what happened, on one screen"),
    ("triage -v", "the same, with all findings and all that could not be known"),
    ("triage -o report.html", "the same and more, in one file that needs no network"),
    ("triage --checks death,leaks", "only these checks"),
)


#: What --redact leaves out. The help of `dmods triage DIR` has it, too.
REDACT = (
    "for a process: leave out texts of exceptions, panics, assertions and abort messages, names of threads, and values "
    "that the program wrote over headers and pointers, and its arguments. Addresses, sizes, and names of "
    "functions, types, files and modules stay. For a kernel: leave out its log, its command line, and the name of the "
    "task that panicked; names of "
    "tasks, files, devices and hosts stay in findings"
)
ARGUMENTS = (
    Argument("-o", "--output", metavar="FILE", help="write a report as well: FILE ends in .html or .json"),
    Argument("--redact", action="store_true", help=REDACT),
    Argument("--checks", metavar="LIST", help="only these checks, with commas between"),
    Argument("--seconds", type=seconds, metavar="N", help="the time for all checks together"),
    Argument("-v", "--verbose", action="store_true", help="all of the text, also where it is longer than a screen"),
    Argument("file", nargs="?", metavar="FILE.json", help="with --json: write the object to this file"),
)


def finished(
    found: Triage,
    kind: str,
    target: Subject,
    args: argparse.Namespace,
    details: Callable[[], Iterable[Detail]] = lambda: (),
) -> Report:
    """Return the report, after it is written to the files that were asked for. Only HTML has ``details``."""
    if args.file is not None and not args.json:
        raise UsageError(f"triage does not know what {args.file} is for", "--json FILE writes JSON, -o FILE a report")
    if args.output is not None and not args.output.endswith((".json", ".html", ".htm")):
        raise UsageError(f"the name {args.output} says no form", "end it with .html or .json")
    if args.redact and kind == "kernel":
        redact_kernel(found)
    report = triage_report(found, kind, whole=args.verbose, notes=target.notes)
    for path in filter(None, (args.output, args.file)):
        whole = as_json(report, target)
        if not found.details and path.endswith((".html", ".htm")):
            found.details = list(details())
        write_file(path, whole if path == args.file else _report(path, found, report, target, whole))
    if args.file is not None:
        args.json = False  # the file has the object; the terminal gets the text
    return report


def redact_kernel(found: Triage) -> None:
    """Leave out the name of the task that panicked, and say what stays.

    The checks of a kernel name tasks, files, devices and hosts: without them their findings say nothing.
    """
    if found.crash is not None:
        lines = [
            Line(line.name, re.sub(r".*(?=, pid \d+)", _hidden, line.text, count=1)) if line.name == "task" else line
            for line in found.crash.facts
        ]
        found.crash = replace(found.crash, facts=lines)
    why = "names of tasks, files, devices and hosts, and the panic's own words, are still in this report"
    found.unknown.append(Unknown("--redact", why, "read it before you pass it on"))


def _hidden(name: re.Match[str]) -> str:
    return left_out("name", name[0])


def _report(path: str, found: Triage, report: Report, target: Subject, json: str) -> str:
    if path.endswith(".json"):
        return json
    from dmods.triage.html import html  # it needs Jinja2

    return html(found, report, target, json)


def as_json(report: Report, target: Optional[Subject]) -> str:
    """Return the object that --json prints."""
    out = io.StringIO()
    notes = list(dict.fromkeys([*(target.notes if target is not None else ()), *report.notes]))
    json_form.write(report, "triage", target, lambda: notes, out)
    return out.getvalue()


def write_file(path: str, text: str) -> None:
    """Write the file. It takes its name when it is whole."""
    partial = f"{path}.partial"
    try:
        with open(partial, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}", "name a file in a folder that exists") from None
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
