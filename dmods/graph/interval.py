"""The time between two cores of a process, by the allocation records in them."""

from __future__ import annotations

from typing import Optional

from dmods.heap.process_heap import ProcessHeap

_NS_PER_HOUR = 3600 * 10**9
_LEAST_NS = 10**9  # a rate per hour from less than a second says nothing


def hours_between(first: ProcessHeap, last: ProcessHeap) -> Optional[float]:
    """Return the hours from the newest event that the first core knows to that of the last, or None.

    A core has no time of its own: NT_PRSTATUS has CPU times only. Both must be of one process.
    """
    before, after = newest_event(first), newest_event(last)
    if before is None or after is None or after - before < _LEAST_NS:
        return None
    return (after - before) / _NS_PER_HOUR


def newest_event(heap: ProcessHeap) -> Optional[int]:
    """Return the time of the newest allocation, or of the newest logged free, in ns of CLOCK_MONOTONIC."""
    times: list[int] = []
    for recording in heap.records.recordings:
        threads = list(range(len(recording.threads)))
        for freed in (False, True):
            _count, _size, rows = recording.rows.newest(freed, threads, 1)
            times.extend(row.time for row in rows if row.time > 0)
    return max(times, default=None)
