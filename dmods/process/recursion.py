"""Find frames that repeat, as a stack overflow leaves them: the same pcs, and the same bytes of stack each time."""

from __future__ import annotations

from collections.abc import Container, Sequence

from dmods.base.named_tuple import NamedTuple

_LONGEST_PERIOD = 8  # functions that call each other
_LEAST_REPEATS = 4
_AHEAD = 64  # frames that decide which functions repeat


class Recursion(NamedTuple):
    """Frames that repeat: ``period`` frames from ``first`` on, ``times`` times, ``size`` bytes of stack each time."""

    first: int
    period: int
    times: int
    size: int


def recursions(pcs: Sequence[int], sps: Sequence[int], alone: Container[int] = ()) -> list[Recursion]:
    """Return the runs of frames that repeat, innermost first. Frames with a number in ``alone`` are in no run."""
    found = []
    n = 0
    while n < len(pcs):
        end = min(len(pcs), n + _AHEAD)
        run = max(
            (_repeats(pcs, sps, alone, first=n, period=period, end=end) for period in range(1, _LONGEST_PERIOD + 1)),
            key=_folded,
        )
        if run.times >= _LEAST_REPEATS:
            run = _repeats(pcs, sps, alone, first=n, period=run.period, end=len(pcs))
            found.append(run)
            n += run.period * run.times
        else:
            n += 1
    return found


def _repeats(
    pcs: Sequence[int], sps: Sequence[int], alone: Container[int], *, first: int, period: int, end: int
) -> Recursion:
    """Return how often the ``period`` frames from ``first`` on repeat before ``end``, each time with as much stack."""
    at = first + period
    size = sps[at] - sps[first] if at < len(pcs) else 0
    while (
        at < end
        and pcs[at] == pcs[at - period]
        and sps[at] - sps[at - period] == size
        and at not in alone
        and at - period not in alone
    ):
        at += 1
    return Recursion(first, period, (at - first) // period, size)


def _folded(run: Recursion) -> tuple[int, int]:
    """Return how many frames the run has beyond the first time, and prefer the shorter period."""
    return (run.times - 1) * run.period, -run.period
