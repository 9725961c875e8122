"""Fit the text of a triage on one screen: what is left out, in which order, and the line that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dmods.output.layout import paragraph
from dmods.output.text import table_text
from dmods.report import Table, Value
from dmods.triage.answer import Triage
from dmods.triage.columns import LINES

WIDTH = 80  # columns of a screen, and of lines that are filled
_SCREEN = 23  # lines: those of a terminal of 24 but for the prompt
# What a report leaves out, in this order, until it fits on a screen.
GAPS, OK, DRAWN = "what could not be known", "checks that passed", "the bar of memory"
OTHER, SIGNATURE, MEMORY, OUTER = "the other explanation", "the signature", "memory", "outer frames"
THREAD = "the first thread"  # of a process that was alive, where it may be any thread that waits
HOLDER = "the end of the largest holder's line"  # two dots stand for it: it is not listed as missing
WHO = "who noticed it"
MORE, LATER, PLACES = "further commands", "the remedies of later findings", "addresses"
ENDS = "the ends of long lines"
_IF_SHORTER = (WHO, MORE, LATER, PLACES, ENDS)  # they are often not there
_LEFT_OUT = (GAPS, OK, DRAWN, OTHER, SIGNATURE, OUTER, THREAD, MEMORY, HOLDER, *_IF_SHORTER)
_LISTED_MISSING = 7  # of them; of more, one is named


def fitted(found: Triage, text: Callable[[frozenset[str]], list[Table]], notes: Sequence[str]) -> list[Table]:
    """Return as much of the text as one screen holds with the notes below. Its last line says what is missing.

    ``text`` returns the tables without some parts.
    """
    size = _SCREEN - _lines(notes)
    without: list[str] = []
    tables = text(frozenset())
    for part in _LEFT_OUT:
        if _height(tables) <= size:
            break
        if part == GAPS and not found.findings:
            continue  # without them, "no finding" says more than is known
        if part == THREAD and not _is_beside(found):
            continue
        shorter = [*text(frozenset([*without, part])), _missing([*without, part])]
        if part in _IF_SHORTER and _height(shorter) >= _height(tables):
            continue
        without.append(part)
        tables = shorter
    return tables


def _is_beside(found: Triage) -> bool:
    """Return whether the first thread says less than who holds the memory: nothing is wrong with a live process."""
    return found.crash is not None and found.crash.alive and not found.findings and found.holder is not None


def _lines(notes: Sequence[str]) -> int:
    """Return the lines that notes take below the text. More than half of the screen is not for them."""
    size = sum(paragraph(f"note: {note}", WIDTH, len("note: ")).count("\n") + 1 for note in notes)
    return min(size, _SCREEN // 2)


def _missing(without: Sequence[str]) -> Table:
    listed = [part for part in without if part != HOLDER]
    if len(listed) > _LISTED_MISSING:
        listed = [f"{listed[0]}, and {len(listed) - 1} more parts"]
    parts = [f"Not shown: {listed[0]}", *listed[1:]]
    rows = list(filled([*parts[:-1], f"{parts[-1]} (-v shows all)"], ", "))
    return Table("missing", LINES, rows, style="plain", joined=True, only="text")


def _height(tables: Sequence[Table]) -> int:
    """Return the lines that the tables take on a terminal."""
    between = sum(not table.joined for table in tables[1:])
    return between + sum(text.count("\n") for table in tables for text in table_text(table, str, WIDTH))


def filled(parts: Sequence[str], between: str) -> Iterator[tuple[Value, ...]]:
    """Yield lines that hold as many of the parts as there is room for."""
    line = ""
    for part in parts:
        if line and len(line) + len(between) + len(part) > WIDTH:
            yield (line + between.rstrip(),)
            line = ""
        line += (between if line else "") + part
    if line:
        yield (line,)
