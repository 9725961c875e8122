"""The tasks of asyncio: name, state, and the coroutines that each waits in.

A task is an object of ``_asyncio.Task`` or of a class that inherits from it. ``task_fut_waiter``, ``task_coro`` and
``task_name`` lie side by side in it (Modules/_asynciomodule.c). Where they begin depends on the release: the first
pointer to a coroutine tells.
"""

from __future__ import annotations

from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.runtimes.python.coroutines import Chain, chain_of, future_of
from dmods.runtimes.python.describe import value_of
from dmods.runtimes.python.memory import LONG, UNICODE, Type
from dmods.runtimes.python.runtime import Python

TASK = "_asyncio.Task"

_COROUTINES = ("coroutine", "generator")
_MOST_BASES = 64
_MOST_BYTES = 512  # of a task
_MOST_NAME = 1000


class Task(NamedTuple):
    """A task that is not done. ``waits_for`` says in words what its innermost coroutine awaits."""

    address: int
    name: str
    chain: Chain
    waits_for: str


def is_task_type(python: Python, kind: Optional[Type]) -> bool:
    """Return whether a type is that of tasks, or inherits from it."""
    return _inherits(python, kind, (TASK,))


def _inherits(python: Python, kind: Optional[Type], names: tuple[str, ...]) -> bool:
    for _step in range(_MOST_BASES):
        if kind is None or kind.name in names:
            return kind is not None
        kind = python.objects.type_at(kind.base) if kind.base else None
    return False


def task_at(python: Python, address: int) -> Optional[Task]:
    """Return the task at an address; None where none is, or where it is done."""
    found = _places(python, address)
    chain = chain_of(python, found[0]) if found is not None else None
    if found is None or chain is None:
        return None
    return Task(address, _name(python, found[1]), chain, _awaited(python, chain.end))


def _places(python: Python, address: int) -> Optional[tuple[int, int]]:
    """Return the coroutine and the name of a task."""
    kind = python.objects.type_of(address)
    if not is_task_type(python, kind) or kind is None:
        return None
    count = min(kind.basicsize, _MOST_BYTES) // 8
    state = python.objects.words.many(address, count) or ()
    for coroutine, name in zip(state[2:], state[3:]):
        own = python.objects.type_of(coroutine)
        if own is not None and own.name in _COROUTINES:
            return coroutine, name
    return None


def _name(python: Python, address: int) -> str:
    """Return the name. Since 3.12 the number of a task stands there until its name is asked for."""
    if python.objects.is_kind(address, UNICODE):
        text = python.objects.text(address, _MOST_NAME)
        return text if text is not None and text.isprintable() else "?"
    number = python.objects.integer(address, 4) if python.objects.is_kind(address, LONG) else None
    return f"Task-{number}" if number is not None else "?"


def _awaited(python: Python, address: Optional[int]) -> str:
    """Return what an awaited object is, in words: "task 'fetch'", "a Future"; "" where it is not known."""
    if address is None:
        return ""
    at = future_of(python, address)
    kind = python.objects.type_of(at)
    if kind is None:
        return ""
    if is_task_type(python, kind):
        found = _places(python, at)
        return f"task {_name(python, found[1])!r}" if found is not None else "a task"
    named = value_of(python.objects, at)
    return f"{kind.name} at {at:#x}" + (f", {named}" if named else "")
