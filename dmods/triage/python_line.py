"""The innermost Python frames of the thread that a report is about."""

from __future__ import annotations

from typing import Optional

from dmods.base.raw_names import printable
from dmods.runtimes.python.find import find_python
from dmods.triage.answer import PYTHON, Line
from dmods.triage.facts import ProcessFacts

_SHOWN = 3  # frames
_READ = 64
_PARTS = 2  # of a path that are shown


def python_line(facts: ProcessFacts) -> Optional[Line]:
    """Return where the thread was in its Python code, the innermost frame first; None: it ran none.

    Of a process that was alive, the first thread is meant, as everywhere in the report. The names are the program's:
    they are left out where contents are private.
    """
    python = find_python(facts.target).python
    if python is None or facts.private:
        return None
    state = next((one for one in python.threads if one.thread and one.thread.tid == facts.thread.tid), None)
    frames = python.stack(state, _READ).frames if state is not None else []
    if not frames:
        return None
    shown = [f"{each.code.qualname} [{_short(each.code.file)}:{each.line or '?'}]" for each in frames[:_SHOWN]]
    left = len(frames) - len(shown)
    more = f", and {left} more" if left else ""
    return Line(PYTHON, printable(", called by ".join(shown) + more))


def _short(path: str) -> str:
    return "/".join(path.rsplit("/", _PARTS)[-_PARTS:])
