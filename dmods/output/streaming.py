"""Parts that the text and the JSON of a report share: the subject, and rows in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Optional, Protocol

from dmods.report import Value

BATCH = 1000  # rows that are rendered together; the first batch sets the widths of a grid


class Subject(Protocol):
    """The target of an answer, as far as its printed form names it: a dmods.target.Target or a kernel."""

    path: Optional[str]  # the dump; None for a living process or kernel
    pid: Optional[int]
    notes: list[str]


def batches(rows: Iterable[Sequence[Value]]) -> Iterator[list[Sequence[Value]]]:
    """Yield the rows in lists of at most BATCH."""
    walker = iter(rows)
    while batch := list(islice(walker, BATCH)):
        yield batch


def target_name(target: Optional[Subject]) -> Optional[str]:
    """Return the core, "process PID" or "kernel"; None for a command that needs no target."""
    if target is None or target.path is not None:
        return target.path if target is not None else None
    return f"process {target.pid}" if target.pid is not None else "kernel"
