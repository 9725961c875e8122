"""Find the checks, and run each within its time."""

from __future__ import annotations

import importlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Optional, Protocol

from dmods.base.dataclass import replace
from dmods.command import modules_in
from dmods.errors import DmodsError, UsageError, UserError
from dmods.finding import CannotCheck, Check, Finding, Measured
from dmods.triage.answer import FOUND, NOT_RUN, PASSED, Result, Triage, Unknown

_LEAST = 0.05  # seconds that a check has even where --seconds are over


class OutOfTime(Exception):
    """A check took longer than its budget."""


class Facts(Protocol):
    """The facts that checks look at. ``provide`` computes a fact that several checks need.

    ``budgets`` has the seconds of each fact. A fact that cannot be had raises CannotCheck.
    """

    @property
    def budgets(self) -> dict[str, float]: ...

    def provide(self, name: str) -> None: ...


def discover(package: str) -> list[Check]:
    """Return the checks in a package, by name."""
    folder = importlib.import_module(package).__path__
    return [importlib.import_module(f"{package}.{name}").CHECK for name in modules_in(folder)]


def chosen(checks: Sequence[Check], names: Optional[str]) -> list[Check]:
    """Return the checks that a list of names with commas between asks for; all of them for None."""
    if names is None:
        return list(checks)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = {check.name for check in checks}
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no check {name!r}", f"the checks are {', '.join(sorted(known))}")
    return [check for check in checks if check.name in wanted]


class Runner:
    """Runs checks on the facts of one dump. ``seconds`` is the time for all of them together, or None."""

    def __init__(self, facts: Facts, seconds: Optional[float]) -> None:
        self.facts = facts
        self._ends = time.monotonic() + seconds if seconds is not None else None
        self._facts: dict[str, Optional[CannotCheck]] = {}

    def run(self, checks: Sequence[Check], into: Triage) -> None:
        """Run the checks, and put what they find and what they could not know into the triage."""
        for check in checks:
            found: list[Finding] = []
            values: list[str] = []
            lacking = next((why for name in check.needs if (why := self.fact(name)) is not None), None)
            if lacking is None:
                lacking = self.guarded(check.name, check.seconds, partial(self._collect, check, found, values))
                into.findings.extend(replace(finding, check=check.name) for finding in found)
            state = FOUND if found else PASSED if lacking is None else NOT_RUN
            kinds = dict.fromkeys(finding.kind for finding in found)
            said = [", ".join(kinds), *values] if kinds else values if lacking is None else [lacking.why]
            value = "; ".join(said)
            into.results.append(Result(check.name, state, value, check.rule))
            if lacking is None:
                into.checks.append(check.name)
            else:
                into.missed.append(check.name)
                into.unknown.append(Unknown(check.name, lacking.why, lacking.help))
        into.findings.sort(key=lambda finding: finding.order)
        into.unknown[:] = together(into.unknown)

    def _collect(self, check: Check, found: list[Finding], values: list[str]) -> None:
        """Keep what a check finds and measures before its time is over."""
        for said in check.run(self.facts):
            if isinstance(said, Measured):
                values.append(said.text)
            else:
                found.append(said)

    def fact(self, name: str) -> Optional[CannotCheck]:
        """Compute a fact once. Return why it cannot be had, or None."""
        if name not in self._facts:
            seconds = self.facts.budgets.get(name, 60.0)
            self._facts[name] = self.guarded(name, seconds, lambda: self.facts.provide(name))
        return self._facts[name]

    def guarded(self, name: str, seconds: float, work: Callable[[], Any]) -> Optional[CannotCheck]:
        """Do the work within its time. Return why it did not end, or None."""
        ended = ""
        if self._ends is not None:
            left = self._ends - time.monotonic()
            seconds = max(seconds, left / 2)  # the others have the other half
            if left < seconds:
                seconds, ended = max(_LEAST, left), "the time that --seconds gives was over"
        try:
            with time_box(seconds):
                work()
        except OutOfTime:
            return CannotCheck(
                ended or f"{name} took longer than {seconds:.3g} s", "a larger --seconds N gives more time"
            )
        except CannotCheck as lacking:
            return lacking
        except UserError as error:
            return CannotCheck(error.what, error.how)
        except DmodsError as error:
            return CannotCheck(str(error))
        return None


def together(unknown: Sequence[Unknown]) -> list[Unknown]:
    """Return one entry for all checks that lack the same."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in unknown:
        found.setdefault((one.why, one.help), []).append(one.what)
    return [Unknown(", ".join(names), why, help) for (why, help), names in found.items()]


@contextmanager
def time_box(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the code inside when the time is over.

    A timer interrupts Python and the engine, as Ctrl-C does. Only the main thread gets signals: elsewhere the time is
    not limited.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def over(_number: int, _frame: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, over)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
