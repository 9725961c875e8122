"""The innermost Python frames of the thread that a report is about, and who holds the GIL."""

from __future__ import annotations

from typing import Optional

from dmods.base.raw_names import printable
from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.gil import find_gils, gil_name
from dmods.runtimes.python.runtime import Python, PythonThread
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


def gil_line(facts: ProcessFacts) -> Optional[Line]:
    """Return which thread holds the GIL of each interpreter; None where no GIL is known.

    Where a thread is in Python code, the innermost frame of it says what the others wait for.
    """
    python = find_python(facts.target).python
    gils = find_gils(python) if python is not None else []
    if python is None or not gils:
        return None
    said = []
    for gil in gils[:_SHOWN]:
        name = f"{gil_name(gil, gils)}: " if len(gils) > 1 else ""
        said.append(f"{name}{_holder(facts, python, gil.holder)}")
    left = len(gils) - len(said)
    return Line("GIL", printable("; ".join(said) + (f"; and {left} more" if left else "")))


def _holder(facts: ProcessFacts, python: Python, holder: Optional[PythonThread]) -> str:
    if holder is None:
        return "no thread holds it"
    thread = holder.thread
    if thread is None:
        return f"the thread with the state at {holder.address:#x} holds it"
    if thread.tid == facts.thread.tid:
        return "this thread holds it"
    frames = python.stack(holder, 1).frames if not facts.private else []
    where = f", in {frames[0].code.qualname} [{_short(frames[0].code.file)}:{frames[0].line or '?'}]" if frames else ""
    return f"thread {facts.named(thread)} holds it{where}"


def _short(path: str) -> str:
    return "/".join(path.rsplit("/", _PARTS)[-_PARTS:])
