"""A finding, and the check that makes it. Both are the same for processes and for kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from dmods.base.dataclass import dataclass, field

#: How bad a finding is. The order is that of the report.
FATAL, SERIOUS, WASTE = "fatal", "serious", "waste"
SEVERITIES = (FATAL, SERIOUS, WASTE)

#: How sure a finding is.
CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
CONFIDENCES = (CERTAIN, LIKELY, POSSIBLE)


class Evidence(NamedTuple):
    """An address that proves the finding, and what lies there."""

    address: int
    what: str


class Hands(NamedTuple):
    """Who had to do with the memory that a fault is about. They are kept apart: who noticed it is seldom the culprit.

    Each is a phrase, or "" where it is not known. ``wrote`` is who wrote or freed the memory.
    """

    noticed: str = ""
    hurt: str = ""
    wrote: str = ""
    holds: str = ""

    @property
    def known(self) -> bool:
        """Return whether anybody else is known than who noticed it, whom the finding's sentence names."""
        return any(self[1:])

    @property
    def text(self) -> str:
        """Return all that is known in one line."""
        names = (("noticed by", self.noticed), ("hurt", self.hurt), ("written or freed by", self.wrote))
        return "; ".join(f"{name} {text}" for name, text in (*names, ("held by", self.holds)) if text)


NOBODY = Hands()


@dataclass(frozen=True)
class Finding:
    """A fault of a process or a kernel.

    ``kind`` is a short name for scripts: "double-free". ``what`` is a sentence without its full stop. FATAL ended the
    process or the kernel, SERIOUS will do harm, WASTE costs memory or time. ``remedy`` says what to do. ``next`` are
    commands to type. ``weight`` orders findings of one severity: bytes, where bytes are meant. ``subject`` names
    what the finding is about in words that another dump of the program has, too: a variable, a caller, a size.

    ``confidence`` is that of the diagnosis, ``remedy_confidence`` that of the remedy. ``alternative`` is another
    explanation, with what speaks for it or against it. ``hands`` says whose memory it was.
    """

    kind: str
    severity: str
    confidence: str
    what: str
    remedy: str
    evidence: Sequence[Evidence] = ()
    next: Sequence[str] = ()
    weight: int = 0
    subject: str = ""
    check: str = ""
    remedy_confidence: str = LIKELY
    alternative: str = ""
    hands: Hands = NOBODY

    @property
    def order(self) -> tuple[int, int, int, str, str]:
        """Return the sort key: the worst first, then the surest, then the largest."""
        place = SEVERITIES.index(self.severity), CONFIDENCES.index(self.confidence)
        return (*place, -self.weight, self.kind, self.what)


class Measured(NamedTuple):
    """The measurement of a check, in words. It stands beside the check's name where nothing was wrong."""

    text: str


#: What a check yields.
Said = Union[Finding, Measured]

#: How a check ended.
PASSED, FOUND, NOT_RUN = "OK", "found", "not run"


class CannotCheck(Exception):
    """A check cannot say anything about this dump. ``why`` is one line, ``help`` says what would help, or is ""."""

    def __init__(self, why: str, help: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.help = help


def left_out(kind: str, text: str) -> str:
    """Return what stands for a text of the dump that a report must not show: its kind and length."""
    return f"<{kind} of {len(text):,} character{'' if len(text) == 1 else 's'}, left out>"


@dataclass(frozen=True)
class Check:
    """A check. Each is a file of a ``checks`` folder, which defines it as ``CHECK``.

    ``needs`` are names of facts that are computed first, and are charged to themselves (see ``runner.Facts``).
    ``seconds`` is the check's own budget. ``rule`` says when there is a finding. ``run`` yields findings, and
    what it measured. It raises CannotCheck where it cannot say anything.
    """

    name: str
    rule: str
    run: Callable[[Any], Iterable[Said]]
    needs: Sequence[str] = ()
    seconds: float = 10.0


@dataclass(frozen=True)
class Result:
    """The result of a check: PASSED, FOUND or NOT_RUN; what it measured (or why it did not run), and its rule."""

    check: str
    state: str
    value: str
    rule: str


@dataclass(frozen=True)
class Unknown:
    """Something that could not be known: a check that did not run, or a part that the dump lacks. Each is one line."""

    what: str
    why: str
    help: str = ""


@dataclass(frozen=True)
class Part:
    """A part of the memory bar. The parts of a dump add up to all of its memory."""

    name: str
    bytes: int
    note: str = ""


@dataclass(frozen=True)
class Memory:
    """Where memory went. ``total_name`` says what the parts add up to."""

    parts: Sequence[Part]
    total_name: str

    @property
    def total(self) -> int:
        """Return the bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    def percents(self) -> list[int]:
        """Return a whole number of percent for each part. They add up to 100 (largest remainder)."""
        total = self.total
        if not total:
            return [0 for _part in self.parts]
        shares = [100 * part.bytes // total for part in self.parts]
        rest = sorted(range(len(shares)), key=lambda index: (-(100 * self.parts[index].bytes % total), index))
        for index in rest[: 100 - sum(shares)]:
            shares[index] += 1
        return shares


class Line(NamedTuple):
    """A line of the crash: a heading and its text."""

    name: str
    text: str


@dataclass(frozen=True)
class Crash:
    """The end of the process or kernel, as facts. ``frames`` are lines of its stack, innermost first.

    ``sentence`` says in one line how it ended. ``alive``: it was alive when it was dumped. ``places`` are the frames
    without addresses, for other machines (dmods/triage/places.py). The first ``runtime_frames`` lines are those of a
    runtime, above what the program called: the terminal leaves them out.
    """

    sentence: str
    alive: bool
    facts: Sequence[Line] = ()
    frames: Sequence[str] = ()
    more_frames: int = 0
    places: Sequence[Any] = ()
    runtime_frames: int = 0


@dataclass
class Triage:
    """The whole answer about one dump. ``subject`` says of what: program, build_id, pid, missing_bytes.

    ``identity`` says the same for people: program, package, host, system. ``trust`` says how far the dump and the files
    beside it can be trusted.
    """

    crash: Optional[Crash] = None
    memory: Optional[Memory] = None
    findings: list[Finding] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)  # checks that could not run
    results: list[Result] = field(default_factory=list)  # of every check that was asked for
    details: Sequence[Any] = ()
    subject: Mapping[str, Any] = field(default_factory=dict)
    identity: Sequence[Line] = ()
    trust: Sequence[Line] = ()
