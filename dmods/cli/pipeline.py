"""Run a command once for each of many addresses, and run pipelines of commands.

The addresses come from the command before (``::walk leak | ::bufctl_audit``) or from standard input (``dmods walk core
leak | dmods bufctl_audit core -``).
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Optional, Protocol, TextIO

from dmods.base.dataclass import replace
from dmods.cli import mdb
from dmods.command import Argument, Command
from dmods.errors import UsageError, UserError
from dmods.output.render import render
from dmods.report import Report, Value, Verdict

STDIN = "-"
_MOST_FAILURES = 8  # addresses without an answer that are named one by one
# A word that every kind of address argument accepts while the command line is parsed. The real ones follow.
_PLACEHOLDER = "0"


class FrontEnd(Protocol):
    """The interface that a pipeline needs of the debugger, or of the shell."""

    @property
    def out(self) -> TextIO:
        """Return the stream for answers."""

    @property
    def err(self) -> TextIO:
        """Return the stream for notes."""

    @property
    def width(self) -> Optional[int]:
        """Return the limit of line lengths. None: `render` decides."""

    def find(self, name: str) -> Command:
        """Return the command of that name. Raises UsageError."""

    def parse(self, command: Command, text: str, more: Sequence[str]) -> argparse.Namespace:
        """Return the arguments in `text`, followed by the words in `more`. Raises UsageError."""

    def target(self, command: Command) -> Any:
        """Return what the command works on, or None where it needs nothing. Raises UserError."""


def run(text: str, names: Sequence[str], front: FrontEnd) -> int:
    """Run a line of mdb's language and return the exit status. Raises UserError."""
    *before, last = mdb.parse(text, names)
    if last.name == mdb.HELP:
        front.out.write(_help(last.arguments, front))
        return 0
    notes: list[str] = []
    addresses: Optional[Iterable[str]] = None
    for step in before:
        addresses = _piped(step, front, addresses, notes)
    command, args, addresses = _prepared(last, front, addresses)
    target = front.target(command)
    if addresses is not None:
        return for_each(command, target, args, addresses, out=front.out, err=front.err, notes=notes, width=front.width)
    report = command.run(target, args)
    render(report, command.name, target, args.json, front.out, front.err, front.width)
    return report.status


def for_each(
    command: Command,
    target: Any,
    args: argparse.Namespace,
    addresses: Iterable[str],
    *,
    out: TextIO,
    err: TextIO,
    notes: Sequence[str] = (),
    width: Optional[int] = None,
) -> int:
    """Run the command for each address and print the answers one after another. Return the exit status.

    Tables with the same columns become one table. An address without an answer becomes a note, and the status is 1.
    """
    answers = _Answers(command, target, args, addresses)
    if args.json:
        # The rows of a joined table are gone once the next table begins.
        tables = [replace(table, rows=list(table.rows)) for group in _joined(answers, "text") for table in group.tables]
        totals: dict[str, Value] = {"addresses": answers.count}
        report = Report(tables, [*notes, *answers.all_notes()], totals, answers.status, answers.verdict)
        render(report, command.name, target, True, out, err)
        return answers.status
    for number, report in enumerate(_joined(answers, "json")):
        if number:
            out.write("\n")
        render(report, command.name, None, False, out, err, width)
    render(Report(notes=[*notes, *answers.all_notes()]), command.name, target, False, out, err, width)
    return answers.status


def address_argument(command: Command) -> Optional[Argument]:
    """Return the argument that takes the address before ``::``: the first positional one that is not a choice."""
    positional = (each for each in command.arguments if not each.names[0].startswith("-"))
    return next((each for each in positional if "choices" not in each.options), None)


def from_stdin(command: Command, args: argparse.Namespace, stdin: TextIO) -> Optional[Iterator[str]]:
    """Return the addresses on standard input where ``-`` stands for the address, else None.

    The first word of each line is the address, so that the rows of a table can be given too.
    """
    argument = address_argument(command)
    if argument is None or getattr(args, argument.names[0]) != STDIN:
        return None
    return (words[0] for words in map(str.split, stdin) if words)


class _Answers:
    """The reports of one command for many addresses, made as they are asked for."""

    def __init__(self, command: Command, target: Any, args: argparse.Namespace, addresses: Iterable[str]) -> None:
        argument = address_argument(command)
        assert argument is not None
        self._name = argument.names[0]
        self._command, self._target, self._args, self._addresses = command, target, args, addresses
        self._notes: dict[str, None] = {}
        self._failures: list[str] = []
        self._failed = 0
        self.count = 0
        self.status = 0
        self.verdict: Optional[Verdict] = None

    def __iter__(self) -> Iterator[Report]:
        first_error: Optional[UserError] = None
        for address in self._addresses:
            args = copy.copy(self._args)
            setattr(args, self._name, address)
            try:
                report = self._command.run(self._target, args)
            except UserError as error:
                first_error = first_error or error
                self._fail(address, error)
                continue
            self.count += 1
            self.status = self.status or report.status
            if self.verdict is None or self.verdict.possible:
                self.verdict = report.verdict or self.verdict
            yield report
            self._notes.update(dict.fromkeys(report.notes))
        if first_error is not None and not self.count:
            raise first_error

    def _fail(self, address: str, error: UserError) -> None:
        self._failed += 1
        self.status = self.status or 1
        if self._failed <= _MOST_FAILURES:
            self._failures.append(error.what if address in error.what else f"{address}: {error.what}")

    def all_notes(self) -> list[str]:
        """Return the notes of all reports, and the addresses that have no answer."""
        more = self._failed - len(self._failures)
        return [*self._notes, *self._failures, *([f"{more} more addresses have no answer"] if more else [])]


def _joined(reports: Iterable[Report], other_form: str) -> Iterator[Report]:
    """Yield the reports. Neighbours that are one table each, with the same columns, are joined to one report.

    Tables that are only for `other_form` ("json" or "text") are left out. The joined table is filled while it is
    printed: a million addresses are never held in memory.
    """
    shown = (replace(one, tables=[table for table in one.tables if table.only != other_form]) for one in reports)
    for _key, group in groupby(enumerate(shown), lambda pair: _layout(pair[1]) or pair[0]):
        _number, first = next(group)
        if _layout(first) is None:
            yield first
        else:
            whole = chain([first], (each for _place, each in group))
            rows = (row for report in whole for row in report.tables[0].rows)
            yield Report([replace(first.tables[0], rows=rows)])


def _layout(report: Report) -> Optional[tuple[object, ...]]:
    """Return what must be equal for two reports to be joined; None where a report must stay alone."""
    if len(report.tables) != 1 or report.verdict is not None:
        return None
    table = report.tables[0]
    alone = table.style not in ("grid", "plain") or table.title or table.footer or table.fold or table.lines is not None
    return None if alone else (table.name, tuple(table.columns), table.style, table.indent)


def _prepared(
    step: mdb.Step, front: FrontEnd, addresses: Optional[Iterable[str]]
) -> tuple[Command, argparse.Namespace, Optional[Iterable[str]]]:
    """Return a step's command, its arguments, and the addresses that a pipe gives it (None: there is no pipe)."""
    command = front.find(step.name)
    if addresses is None and not step.address:
        return command, front.parse(command, step.arguments, []), None
    argument = address_argument(command)
    if argument is None:
        raise UsageError(f"{command.name} takes no address", f"without one: ::{command.name}")
    args = front.parse(command, step.arguments, [_PLACEHOLDER])
    setattr(args, argument.names[0], step.address)
    return command, args, addresses


def _piped(step: mdb.Step, front: FrontEnd, addresses: Optional[Iterable[str]], notes: list[str]) -> Iterator[str]:
    """Return the addresses that a step hands to the next one."""
    command, args, addresses = _prepared(step, front, addresses)
    # Walkers give the columns behind the address only to JSON, and some give only finished text otherwise.
    args.json = True
    target = front.target(command)
    if addresses is None:
        return _addresses([command.run(target, args)], command, notes)
    answers = _Answers(command, target, args, addresses)
    return _addresses(answers, command, notes, answers)


def _addresses(
    reports: Iterable[Report], command: Command, notes: list[str], answers: Optional[_Answers] = None
) -> Iterator[str]:
    """Yield the first column of addresses of each report's first table."""
    for report in reports:
        table = report.tables[0] if report.tables else None
        columns = table.columns if table is not None else ()
        place = next((n for n, each in enumerate(columns) if each.kind == "address" and not each.hidden), None)
        if table is None or place is None:
            raise UsageError(
                f"{command.name} gives no addresses to the next command", "::walk NAME does; `::walkers` lists them"
            )
        for row in table.rows:
            value = row[place]
            if isinstance(value, int):
                yield hex(value)
        if answers is None:
            notes.extend(report.notes)
    if answers is not None:
        notes.extend(answers.all_notes())


_FORMS = """\
::NAME [ARGUMENTS]         run a command
ADDR::NAME [ARGUMENTS]     run it for an address
::NAME | ::NAME            run the second for each address that the first gives
::dcmds lists the commands, ::walkers what `walk` walks; ::help NAME explains one
"""


def _help(name: str, front: FrontEnd) -> str:
    return front.find(name.lstrip(":")).parser().format_help() if name else _FORMS
