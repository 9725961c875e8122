"""Lay out lines so that they fit a terminal. Nothing is cut: a text that is too long continues in the next line.

A row of a grid breaks between cells, and a long cell continues below its own beginning. Text breaks at spaces. A word
that is longer than its place breaks after one of ``/ , ` ::`` and after the brackets of templates. A word without these
characters stays whole, even where it is longer than the terminal is wide.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Optional, TextIO

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.report import Column

_STEP = 4  # how far a continuation is indented
_COMFORT = 28  # a text column that is narrower than this is hard to read
_NARROWEST = 20  # below this nothing can be laid out
_ABSENT = ("", "-")
_SOFT = regex(r".+?(?:[/,`<>()]+|::|$)")


def terminal_width(stream: TextIO) -> Optional[int]:
    """Return the number of columns of the stream's terminal, or None where it is no terminal. COLUMNS overrides it."""
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    width = int(given) if given.isdecimal() else 0
    if not width:
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            width = 0
    return max(width or 80, _NARROWEST)


def wrap(text: str, room: int, first: Optional[int] = None) -> list[str]:
    """Return the text in pieces of at most ``room`` characters, the first of at most ``first``."""
    if len(text) <= (room if first is None else first):
        return [text]
    pieces: list[str] = []
    line, left = "", room if first is None else first
    for number, word in enumerate(text.split(" ")):
        gap = " " if number else ""
        if len(line) + len(gap) + len(word) <= left:
            line += gap + word
            continue
        if len(word) <= room and (line.strip() or left < room):
            pieces.append(line)
            line, left = word, room
            continue
        line += gap
        for part in _SOFT.findall(word):
            if line.strip() and len(line) + len(part) > left:
                pieces.append(line.rstrip())
                line, left = "", room
            line += part
    return [*pieces, line]


def paragraph(text: str, width: Optional[int], hang: int = _STEP) -> str:
    """Return the text in lines of at most ``width``. The first keeps its indentation, the others have ``hang`` more."""
    if width is None or len(text) <= width:
        return text
    margin = len(text) - len(text.lstrip())
    if margin + hang > width // 2:
        margin = 0
    return hanging(" " * margin, text.lstrip(), margin + hang, width)


def hanging(before: str, text: str, indent: int, width: int) -> str:
    """Return ``before`` and the text, which goes on in lines of its own at ``indent``."""
    first, *others = wrap(text, width - indent, width - len(before))
    return "\n".join([(before + first).rstrip(), *(_indented(each, indent, width) for each in others)])


def _indented(piece: str, indent: int, width: int) -> str:
    """Return the piece at ``indent``, or further left where it would be too long there."""
    return " " * max(0, min(indent, width - len(piece))) + piece


def cells_in_lines(cells: Sequence[str], width: int, indent: int = 0) -> list[str]:
    """Return cells joined by spaces. A cell that does not fit behind the others begins a line."""
    space = " " * (indent + _STEP)
    lines, line = [], " " * indent
    for number, cell in enumerate(cells):
        gap = "" if not number or not line.strip() else " "
        if len(line) + len(gap) + len(cell) <= width:
            line += gap + cell
            continue
        if line.strip() and (len(space) + len(cell) <= width or " " not in cell):
            lines.append(line.rstrip())
            line, gap = space, ""
        first, *more = wrap(cell, width - len(space), width - len(line) - len(gap))
        line = line + gap + first if line.strip() else _indented(first, len(line), width)
        for piece in more:
            lines.append(line.rstrip())
            line = _indented(piece, len(space), width)
    return [*lines, line.rstrip()]


class _Place(NamedTuple):
    """The place of a column in its line."""

    column: int
    start: int
    width: int
    left: bool


@dataclass(frozen=True)
class Plan:
    """The layout of the rows of a grid: the columns of each line, and where they stand."""

    lines: Sequence[Sequence[_Place]]
    width: int

    @classmethod
    def make(cls, columns: Sequence[Column], natural: Sequence[int], width: int) -> Plan:
        """Return the plan for a width. ``natural`` is how wide each column would be if there were room."""
        least = [
            min(n, max(column.width, len(column.heading), _COMFORT)) if column.is_words else n
            for column, n in zip(columns, natural)
        ]
        lines: list[list[_Place]] = []
        for chosen, indent in _lines(least, width):
            widths = _shared([least[n] for n in chosen], [natural[n] for n in chosen], width - indent)
            places, start = [], indent
            for number, own in zip(chosen, widths):
                places.append(_Place(number, start, own, columns[number].is_words))
                start += own + 1
            lines.append(places)
        return cls(lines, width)

    def row(self, texts: Sequence[str], heading: bool = False) -> Iterator[str]:
        """Yield the lines of a row. Empty lines at its end are left out."""
        lines = list(self.lines)
        while len(lines) > 1 and not heading and all(texts[place.column] in _ABSENT for place in lines[-1]):
            lines.pop()
        for places in lines:
            yield from self._line(places, texts)

    def _line(self, places: Sequence[_Place], texts: Sequence[str]) -> Iterator[str]:
        pieces = [wrap(texts[place.column], place.width) if place.left else [texts[place.column]] for place in places]
        for number in range(max(map(len, pieces))):
            line = ""
            for place, own in zip(places, pieces):
                piece = own[number] if number < len(own) else ""
                if not piece:
                    continue
                text = piece if place.left else piece.rjust(place.width)
                start = place.start
                if start + len(text) > self.width:  # a word that cannot be broken, or an unusually long number
                    start = max(0, self.width - len(text))
                if line and len(line) >= start:
                    yield line.rstrip()
                    line = ""
                line = line.ljust(start) + text
            if line:
                yield line.rstrip()


def _lines(least: Sequence[int], width: int) -> Iterator[tuple[list[int], int]]:
    """Yield the columns of each line of a row, and the line's indentation. A line takes as many columns as fit."""
    chosen: list[int] = []
    indent, used = 0, 0
    for number, own in enumerate(least):
        if chosen and used + 1 + own > width - indent:
            yield chosen, indent
            chosen, indent, used = [], _STEP, 0
        used += own + (1 if chosen else 0)
        chosen.append(number)
    yield chosen, indent


def _shared(least: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """Return the widths of a line's columns. The columns that want more share the rest of the room evenly."""
    widths = list(least)
    left = room - sum(widths) - len(widths) + 1
    while left > 0:
        wanting = [n for n, own in enumerate(widths) if own < natural[n]]
        if not wanting:
            break
        smallest = min(wanting, key=lambda n: widths[n])
        widths[smallest] += 1
        left -= 1
    return widths
