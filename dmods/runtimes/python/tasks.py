"""The tasks of asyncio: name, state, and the coroutines that each waits in.

A task is an object of ``_asyncio.Task`` or of a class that inherits from it. ``task_fut_waiter``, ``task_coro`` and
``task_name`` lie side by side in it (Modules/_asynciomodule.c). Where they begin depends on the release: the first
pointer to a coroutine tells. Or it is an object of the class ``Task`` of asyncio/tasks.py, which is used where
``_asyncio`` is missing, or where a program asks for it: that has attributes.
"""

from __future__ import annotations

from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.runtimes.python.attributes import attributes, class_module
from dmods.runtimes.python.coroutines import Chain, chain_of, future_of
from dmods.runtimes.python.describe import value_of
from dmods.runtimes.python.memory import LONG, UNICODE, Type
from dmods.runtimes.python.runtime import Python

TASK = "_asyncio.Task"
_PURE, _MODULE = "Task", "asyncio.tasks"  # the class in Python

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
    return _base(python, kind) is not None


def _base(python: Python, kind: Optional[Type]) -> Optional[Type]:
    """Return the class of asyncio that a type is or inherits from, or None."""
    for _step in range(_MOST_BASES):
        if kind is None or kind.name == TASK:
            return kind
        if kind.name == _PURE and class_module(python.objects, kind) == _MODULE:
            return kind
        kind = python.objects.type_at(kind.base) if kind.base else None
    return None


def task_at(python: Python, address: int) -> Optional[Task]:
    """Return the task at an address; None where none is, or where it is done."""
    found = _places(python, address)
    chain = chain_of(python, found.coroutine) if found is not None else None
    if found is None or chain is None:
        return None
    # The future of a task in Python waits in a generator, which does not say whose it is.
    return Task(address, _name(python, found.name), chain, _awaited(python, chain.end or found.waiter))


class _Places(NamedTuple):
    """The coroutine and the name of a task; and what it waits for, where an attribute says it."""

    coroutine: int
    name: int
    waiter: Optional[int] = None


def _places(python: Python, address: int) -> Optional[_Places]:
    kind = python.objects.type_of(address)
    base = _base(python, kind)
    if kind is None or base is None:
        return None
    if base.name == _PURE:
        has = attributes(python.objects, address)
        return _Places(has["_coro"], has.get("_name", 0), has.get("_fut_waiter")) if "_coro" in has else None
    count = min(kind.basicsize, _MOST_BYTES) // 8
    state = python.objects.words.many(address, count) or ()
    for coroutine, name in zip(state[2:], state[3:]):
        own = python.objects.type_of(coroutine)
        if own is not None and own.name in _COROUTINES:
            return _Places(coroutine, name)
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
    if kind is None or kind.name == "NoneType":
        return ""
    if is_task_type(python, kind):
        found = _places(python, at)
        return f"task {_name(python, found.name)!r}" if found is not None else "a task"
    named = value_of(python.objects, at)
    return f"{kind.name} at {at:#x}" + (f", {named}" if named else "")
