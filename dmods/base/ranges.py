"""Sets of addresses as disjoint ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Optional


class Ranges:
    """A set of addresses: disjoint ranges [start, end), sorted. Ranges that touch are merged."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Add a range. An empty one changes nothing."""
        if start >= end:
            return
        if not self._ends or start > self._ends[-1]:  # the usual case
            self._starts.append(start)
            self._ends.append(end)
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends))

    def __contains__(self, address: int) -> bool:
        index = bisect_right(self._starts, address) - 1
        return index >= 0 and address < self._ends[index]

    def range_at(self, address: int) -> Optional[tuple[int, int]]:
        """Return the range that holds the address, or None."""
        index = bisect_right(self._starts, address) - 1
        return (self._starts[index], self._ends[index]) if index >= 0 and address < self._ends[index] else None

    def size(self) -> int:
        """Return the number of addresses in the set."""
        return sum(self._ends) - sum(self._starts)

    def without(self, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the parts of ``ranges`` that are not in this set."""
        out: list[tuple[int, int]] = []
        for part in ranges:
            start, end = part
            first = bisect_right(self._ends, start) if self._ends else 0
            if start < end and (first == len(self._starts) or self._starts[first] >= end):
                out.append(part)  # the usual case
                continue
            at = start
            for index in range(first, len(self._starts)):
                if self._starts[index] >= end:
                    break
                if self._starts[index] > at:
                    out.append((at, self._starts[index]))
                at = max(at, self._ends[index])
            if at < end:
                out.append((at, end))
        return out

    def multiples(self, step: int, most: int) -> list[int]:
        """Return the first ``most`` multiples of ``step`` inside the ranges. The start of a range is not included."""
        starts = ((start + step - start % step, end) for start, end in self)
        return list(islice((at for first, end in starts for at in range(first, end, step)), most))

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of this set that lie in [start, end)."""
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        return [(max(start, s), min(end, e)) for s, e in zip(self._starts[first:last], self._ends[first:last])]
