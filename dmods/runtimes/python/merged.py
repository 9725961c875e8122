"""Put the Python frames of a thread beside the C frames in which the interpreter runs them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from dmods.base.cached import cached
from dmods.base.named_tuple import NamedTuple
from dmods.process.unwind import Frame
from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.runtime import PythonFrame, PythonThread
from dmods.target import Target, Thread

EVAL = "_PyEval_EvalFrameDefault"


class Merged(NamedTuple):
    """The Python frames that each C frame runs, by the index of the C frame. ``note`` says why no frame was found."""

    frames: dict[int, list[PythonFrame]]
    note: str = ""


@cached
def _by_thread(target: Target) -> dict[int, PythonThread]:
    python = find_python(target).python
    threads = python.threads if python is not None else ()
    return {thread.thread.tid: thread for thread in threads if thread.thread is not None}


def merge(target: Target, thread: Thread, frames: Sequence[Frame], whole: bool) -> Merged:
    """Return the Python frames of a thread beside its C frames. ``whole``: ``frames`` is the thread's whole stack.

    A call of the interpreter's function runs Python frames up to the one that it was called for. If a stack has more or
    fewer such calls than its Python frames need, nothing is merged.
    """
    found = find_python(target).python
    state = _by_thread(target).get(thread.tid) if found is not None else None
    if found is None or state is None:
        return Merged({})
    stack = found.stack(state)
    runs: list[list[PythonFrame]] = []
    begin = True
    for frame in stack.frames:
        if begin:
            runs.append([])
        runs[-1].append(frame)
        begin = frame.outermost
    calls = _calls_by_place(runs, frames) or [
        index for index, frame in enumerate(frames) if _runs_python(target, frame)
    ]
    if stack.problem is None and (len(calls) == len(runs) or (not whole and len(calls) < len(runs))):
        return Merged(dict(zip(calls, runs)))
    if not runs and not calls:
        return Merged({})
    return Merged(
        {}, f"{len(stack.frames)} Python frames do not fit these {len(calls)} calls of the interpreter: see `pystack`"
    )


def _calls_by_place(runs: Sequence[Sequence[PythonFrame]], frames: Sequence[Frame]) -> list[int]:
    """Return the C frame of each run by the entry frame that lies in it. [] unless each run has such a frame.

    Since 3.12, _PyEval_EvalFrameDefault has an _PyInterpreterFrame among its variables (Python/ceval.c: entry_frame).
    So no symbol is needed, and its code may be split into functions without names, as with the tail calls of 3.14.
    """
    sps = [frame.sp for frame in frames]
    calls: list[int] = []
    for run in runs:
        entry = run[-1].entry
        index = bisect_right(sps, entry) - 1 if entry is not None else -1
        if entry is None or not 0 <= index < len(sps) - 1 or (calls and index <= calls[-1]):
            return []
        calls.append(index)
    return calls if sps == sorted(sps) else []


def _runs_python(target: Target, frame: Frame) -> bool:
    symbol = target.symbol_at(frame.code_address)
    return symbol is not None and symbol.name.partition(".")[0] == EVAL
