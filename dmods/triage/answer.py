"""The answer of `triage` about one dump: its findings, the results of checks, memory, the crash, what is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.finding import Finding

#: How a check ended.
PASSED, FOUND, NOT_RUN = "OK", "found", "not run"


def left_out(kind: str, text: str) -> str:
    """Return what stands for a text of the dump that a report must not show: its kind and length."""
    return f"<{kind} of {len(text):,} character{'' if len(text) == 1 else 's'}, left out>"


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
    """A part of the memory bar. The parts of a dump add up to all of its memory.

    ``mapped`` are its bytes with those that were never touched; None where that is not told apart.
    """

    name: str
    bytes: int
    note: str = ""
    mapped: Optional[int] = None


@dataclass(frozen=True)
class Memory:
    """Where memory went. ``total_name`` says what the parts add up to. ``untouched`` bytes are mapped beside it.

    ``values`` are all figures, as JSON has them; None for a kernel.
    """

    parts: Sequence[Part]
    total_name: str
    untouched: int = 0
    values: Optional[Mapping[str, Any]] = None

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


#: The name of the line with the Python frames of a thread.
PYTHON = "python"


class Line(NamedTuple):
    """A line of the crash: a heading and its text."""

    name: str
    text: str


@dataclass(frozen=True)
class Crash:
    """The end of the process or kernel, as facts. ``frames`` are lines of its stack, innermost first.

    ``sentence`` says in one line how it ended. ``alive``: it was alive when it was dumped. ``places`` are the frames
    without addresses, for other machines (dmods/triage/portable_frames.py). The first ``runtime_frames`` lines are
    those of a runtime, above what the program called: the terminal leaves them out.
    """

    sentence: str
    alive: bool
    facts: Sequence[Line] = ()
    frames: Sequence[str] = ()
    more_frames: int = 0
    places: Sequence[Any] = ()
    runtime_frames: int = 0


@dataclass(frozen=True)
class Holder:
    """The holder of the most memory, as a sentence without its full stop. Healthy processes have one, too.

    ``kind`` is that of a suspect ("held", "type", "size", "leaked", "free"), or "mapping" for memory outside the heap.
    ``share`` is its part of the blocks in use, and ``share_of_process`` that of the process's memory; None where that
    is not known. ``is_suspect``: `suspects` names it as one.
    """

    what: str
    kind: str
    bytes: int
    next: Sequence[str]
    share: Optional[float] = None
    share_of_process: Optional[float] = None
    address: Optional[int] = None
    is_suspect: bool = False


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
    holder: Optional[Holder] = None
