"""Write a report as text or as JSON."""

from __future__ import annotations

from collections.abc import Container
from typing import Optional, TextIO

from dmods.base.raw_names import printable
from dmods.output.layout import paragraph, terminal_width
from dmods.output.streaming import Subject
from dmods.output.text import emphasis, table_text
from dmods.report import Report


def render(  # noqa: PLR0917 (every front end gives all six)
    report: Report,
    command: str,
    target: Optional[Subject],
    json: bool,
    out: TextIO,
    err: TextIO,
    width: Optional[int] = None,
    known: Container[str] = (),
) -> None:
    """Write the results to `out`, and the notes of the target and of the report to `err` or into the JSON object.

    The notes come last, because some are found while the rows are made. On a terminal, lines are as long as it is wide.
    `width` is for a debugger that knows better; 0: lines of any length. `known` are notes that were printed before, and
    are not repeated for people.
    """

    def all_notes() -> list[str]:
        return list(dict.fromkeys([*(target.notes if target is not None else ()), *report.notes]))

    if json:
        from dmods.output import json as json_form  # and the standard library's json

        json_form.write(report, command, target, all_notes, out)
        return
    across, beside = (terminal_width(stream) if width is None else width or None for stream in (out, err))
    for number, table in enumerate(table for table in report.tables if table.only != "json"):
        if number and not table.joined:
            out.write("\n")
        for text in table_text(table, emphasis(out), across):
            out.write(text)
    if report.verdict is not None and not report.verdict.possible:
        # On stdout: without this line, an empty result reads as a clean one. A script has the exit status.
        to, columns = (err, beside) if report.for_scripts else (out, across)
        to.write(paragraph(f"no verdict: {printable(report.verdict.reason)}", columns) + "\n")
    out.flush()
    for note in (note for note in all_notes() if note not in known):
        err.write(paragraph(f"note: {printable(note)}", beside, len("note: ")) + "\n")
