"""The parts of the heap that the dump lacks. What is not there is not damaged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Callable, Optional

from dmods.allocators.glibc.bins import Bins, Problem
from dmods.allocators.glibc.half_done import Anomaly, HalfDone
from dmods.base.ranges import Ranges

if TYPE_CHECKING:
    from dmods._engine import RunReport

# With a part of an arena's memory unseen, these say nothing: a list may lead through that part.
_NEED_ALL = ("unlisted",)


def unseen_parts(reports: Iterable[RunReport], word: int) -> Ranges:
    """Return the parts of the heap that the dump lacks, and the parts behind them where no chunk is known for that
    reason."""
    unseen = Ranges()
    for report in reports:
        missing = Ranges(report["missing"])
        for part in missing:
            unseen.add(*part)
        for start, end in report["lost"]:
            if _lacks_header(missing, start, word):
                unseen.add(start, end)
    return unseen


def seen_anomalies(report: RunReport, word: int, begun: HalfDone) -> list[Anomaly]:
    """Return the anomalies of a run, without the chunks whose header the dump lacks, or malloc had begun to change."""
    missing = Ranges(report["missing"])
    return [
        each
        for each in report["anomalies"]
        if each[0] != "missing" and not _lacks_header(missing, each[1], word) and not begun.explains_header(each, word)
    ]


def damaged_chunks(report: RunReport, word: int, begun: HalfDone) -> int:
    """Return how many chunks of a run are damaged. The engine counts those whose header the dump lacks, too."""
    described = len(report["anomalies"])
    more = report["anomaly_count"] - described
    missing = Ranges(report["missing"]) if more else Ranges()
    absent = sum(_lacks_header(missing, start, word) for start, _end in report["lost"]) if more else 0
    absent_described = described - len(seen_anomalies(report, word, begun))
    return described - absent_described + max(0, more - max(0, absent - absent_described))


def _lacks_header(missing: Ranges, chunk: int, word: int) -> bool:
    # A missing part is cut at the end of its run. The header of the top chunk lies behind that end.
    return bool(missing.within(chunk - 1, chunk + 2 * word))


def seen_problems(
    found: Bins, is_unseen: Callable[[int], bool], arenas_unseen: set[int], end_of: Callable[[int], Optional[int]]
) -> None:
    """Leave out the problems of bins that come from memory that the dump lacks.

    ``end_of`` returns where the chunk at an address ends. The header there says whether the chunk is free.
    """
    kept: list[Problem] = []
    for problem in found.problems:
        absent = problem.fault == "missing" or is_unseen(problem.address) or is_unseen(problem.value)
        if problem.fault == "in use":
            end = end_of(problem.value)
            absent = absent or (end is not None and is_unseen(end))
        if not absent and not (problem.fault in _NEED_ALL and problem.arena in arenas_unseen):
            kept.append(problem)
    found.problems, found.problem_count = kept, len(kept)
