"""Sequences of named tuples in little memory."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from typing import Any, Callable, Generic, TypeVar, Union, overload

Row = TypeVar("Row", bound="tuple[Any, ...]")


class Rows(Sequence[Row], Generic[Row]):
    """A sequence of named tuples, stored column by column. A tuple is made when it is asked for.

    A core may describe a million mappings. As a tuple of ints, each takes 250 bytes, and the garbage collector visits
    them again and again. Here each field takes 8 bytes.
    """

    def __init__(self, make: Callable[..., Row], codes: str, rows: Iterable[Row] = ()) -> None:
        """``codes`` has one letter for each field: "Q" (an unsigned 64-bit int) or "O" (any object)."""
        self._make = make
        self._codes = codes
        self.columns: tuple[MutableSequence[Any], ...] = tuple([] if code == "O" else array(code) for code in codes)
        self._append = [column.append for column in self.columns]
        for row in rows:
            self.append(row)

    def append(self, row: Iterable[Any]) -> None:
        """Append a row, given by its fields."""
        for append, value in zip(self._append, row):
            append(value)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Row]:
        return map(self._make, *self.columns)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Row, Sequence[Row]]:
        if isinstance(index, slice):
            return list(map(self._make, *(column[index] for column in self.columns)))
        return self._make(*(column[index] for column in self.columns))

    def in_order(self) -> Rows[Row]:
        """Return the rows sorted by the first column: this object itself, if they are in order."""
        first = self.columns[0]
        if all(map(int.__le__, first, first[1:])):
            return self
        ordered = Rows(self._make, self._codes)
        for place in sorted(range(len(first)), key=first.__getitem__):
            ordered.append(self[place])
        return ordered


def at_or_before(rows: Sequence[tuple[Any, ...]], value: int) -> int:
    """Return the index of the last row whose first field is at most ``value``, or -1. The rows are sorted by it."""
    if isinstance(rows, Rows):
        return bisect_right(rows.columns[0], value) - 1
    low, high = 0, len(rows)
    while low < high:  # bisect has no key before Python 3.10
        middle = (low + high) // 2
        if rows[middle][0] <= value:
            low = middle + 1
        else:
            high = middle
    return low - 1
