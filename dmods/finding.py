"""A finding, and the check that makes it. Both are the same for processes and for kernels.

A finding says what is wrong, how sure that is, where (addresses as evidence), what to do, and what to type next. All
parts of dmods that judge a dump speak in findings: allocators of damage and waste, checks of everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple

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


class Parties(NamedTuple):
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


NOBODY = Parties()


@dataclass(frozen=True)
class Finding:
    """A fault of a process or a kernel.

    ``kind`` is a short name for scripts: "double-free". ``what`` is a sentence without its full stop. FATAL ended the
    process or the kernel, SERIOUS will do harm, WASTE costs memory or time. ``remedy`` says what to do. ``next`` are
    commands to type. ``weight`` orders findings of one severity: bytes, where bytes are meant. ``subject`` names
    what the finding is about in words that another dump of the program has, too: a variable, a caller, a size.

    ``confidence`` is that of the diagnosis, ``remedy_confidence`` that of the remedy. ``alternative`` is another
    explanation, with the evidence for it or against it. ``parties`` says whose memory it was.
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
    parties: Parties = NOBODY

    @property
    def order(self) -> tuple[int, int, int, str, str]:
        """Return the sort key: the worst first, then the surest, then the largest."""
        place = SEVERITIES.index(self.severity), CONFIDENCES.index(self.confidence)
        return (*place, -self.weight, self.kind, self.what)


def least_sure(found: Iterable[Finding]) -> str:
    """Return the confidence of the least sure of the findings."""
    return max((each.confidence for each in found), key=CONFIDENCES.index)


def fatal(
    kind: str,
    confidence: str,
    what: str,
    remedy: str,
    evidence: Sequence[Evidence] = (),
    *,
    next_: Sequence[str] = ("findstack",),
    sure: str = LIKELY,
    or_: str = "",
    parties: Parties = NOBODY,
) -> Finding:
    """Return a finding about what ended a process. ``sure`` is how sure the remedy is, ``or_`` the alternative."""
    return Finding(
        kind,
        FATAL,
        confidence,
        what,
        remedy,
        tuple(evidence),
        tuple(next_),
        remedy_confidence=sure,
        alternative=or_,
        parties=parties,
    )


class Measured(NamedTuple):
    """The measurement of a check, in words. It stands beside the check's name where nothing was wrong."""

    text: str


#: What a check yields.
Said = Union[Finding, Measured]


class CannotCheck(Exception):
    """A check cannot say anything about this dump. ``why`` is one line, ``help`` says what would help, or is ""."""

    def __init__(self, why: str, help: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.help = help


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
