"""Fit the text of a triage on one screen: what is left out, in which order, and the line that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dmods.output.text import table_text
from dmods.report import Column, Table, Value
from dmods.triage.answer import Triage

WIDTH = 80  # columns of a screen, and of lines that are filled
_SCREEN = 23  # lines: those of a terminal of 24 but for the prompt
# What a report leaves out, in this order, until it fits on a screen.
GAPS, OK, DRAWN = "what could not be known", "checks that passed", "the bar of memory"
OTHER, SIGNATURE, MEMORY, OUTER = "the other explanation", "the signature", "memory", "outer frames"
THREAD = "the first thread"  # of a process that was alive, where it may be any thread that waits
HOLDER = "the end of the largest holder's line"  # two dots stand for it: it is not listed as missing
WHO = "who noticed it"
_LEFT_OUT = (GAPS, OK, DRAWN, OTHER, SIGNATURE, OUTER, THREAD, MEMORY, HOLDER, WHO)


def fitted(found: Triage, text: Callable[[frozenset[str]], list[Table]]) -> list[Table]:
    """Return as much of the text as one screen holds. Its last line says what is missing.

    ``text`` returns the tables without some parts.
    """
    without: list[str] = []
    tables = text(frozenset())
    for part in _LEFT_OUT:
        if _height(tables) <= _SCREEN:
            break
        if part == GAPS and not found.findings:
            continue  # without them, "no finding" says more than is known
        if part == THREAD and not _is_beside(found):
            continue
        shorter = [*text(frozenset([*without, part])), _missing([*without, part])]
        if part == WHO and _height(shorter) >= _height(tables):
            continue  # nobody was named
        without.append(part)
        tables = shorter
    return tables


def _is_beside(found: Triage) -> bool:
    """Return whether the first thread says less than who holds the memory: nothing is wrong with a live process."""
    return found.crash is not None and found.crash.alive and not found.findings and found.holder is not None


def _missing(without: Sequence[str]) -> Table:
    listed = [part for part in without if part != HOLDER]
    parts = [f"Not shown: {listed[0]}", *listed[1:]]
    rows = list(filled([*parts[:-1], f"{parts[-1]} (-v shows all)"], ", "))
    return Table("missing", (Column("line"),), rows, style="plain", joined=True, only="text")


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
