"""A million named tuples in few bytes."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from typing import Any, Callable, Generic, TypeVar, Union, overload

Row = TypeVar("Row", bound="tuple[Any, ...]")


class Rows(Sequence[Row], Generic[Row]):
    """Rows of one kind of named tuple, kept column by column and made when they are asked for.

    A core may describe a million mappings. As a tuple of ints each takes 250 bytes, which the garbage collector looks
    through again and again; here it is 8 bytes a field.
    """

    def __init__(self, make: Callable[..., Row], codes: str, rows: Iterable[Row] = ()) -> None:
        """``codes`` has for each field "Q" (an int of 64 bits) or "O" (anything)."""
        self._make = make
        self._codes = codes
        self.columns: tuple[MutableSequence[Any], ...] = tuple([] if code == "O" else array(code) for code in codes)
        self._append = [column.append for column in self.columns]
        for row in rows:
            self.append(row)

    def append(self, row: Iterable[Any]) -> None:
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
        """The same, sorted by the first column."""
        first = self.columns[0]
        if all(map(int.__le__, first, first[1:])):
            return self
        ordered = Rows(self._make, self._codes)
        for place in sorted(range(len(first)), key=first.__getitem__):
            ordered.append(self[place])
        return ordered


def at_or_before(rows: Sequence[tuple[Any, ...]], value: int) -> int:
    """The index of the last row whose first field is not beyond ``value``, of rows in that field's order; -1: none."""
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


def firsts(rows: Sequence[tuple[Any, ...]]) -> Sequence[int]:
    """The first field of each, for bisection."""
    return rows.columns[0] if isinstance(rows, Rows) else [row[0] for row in rows]
