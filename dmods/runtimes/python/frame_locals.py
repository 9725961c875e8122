"""The local variables of CPython's frames: where each lies, and its name."""

from __future__ import annotations

from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.runtimes.python.memory import TUPLE
from dmods.runtimes.python.runtime import Python

_MOST = 1 << 16  # local variables of a function, and places of its value stack
_TUPLES = {(3, 9): (72, 88, 80), (3, 10): (72, 88, 80)}  # co_varnames, co_cellvars, co_freevars
_ALL = 96  # co_localsplusnames, since 3.11 (Include/cpython/code.h)
_STACK_SIZE = {(3, 9): 32, (3, 10): 32, (3, 11): 68}  # co_stacksize; 64 since 3.12
# f_localsplus of a frame object; of _PyInterpreterFrame since 3.11 (Include/internal/pycore_frame.h).
_PLACES = {(3, 9): 360, (3, 10): 352, (3, 11): 72, (3, 12): 72, (3, 13): 72}


class Locals(NamedTuple):
    """The places of a frame. ``names`` are those of its variables in order. The value stack follows, up to ``end``."""

    start: int
    names: list[str]
    end: int


def frame_locals(python: Python, frame: int, code: int) -> Optional[Locals]:
    """Return the places of the frame at an address whose code object is at ``code``; None where they are not known."""
    version, words = python.layout.version, python.objects.words
    names: list[str] = []
    for place in _TUPLES.get(version, (_ALL,)):
        part = _names(python, words.at(code + place) or 0)
        if part is None:
            return None
        names += part
    stack = words.int32(code + _STACK_SIZE.get(version, 64))
    if stack is None or not 0 <= stack <= _MOST:
        return None
    start = frame + _PLACES.get(version, 80)
    return Locals(start, names, start + 8 * (len(names) + stack))


def items(python: Python, address: int, most: int) -> Optional[list[int]]:
    """Return the items of a tuple, or None where no tuple is, or where it has more than ``most``."""
    count = python.objects.words.at(address + 16)
    if not python.objects.is_kind(address, TUPLE) or count is None or count > most:
        return None
    # A tuple has its hash before its items since 3.14.
    found = python.objects.words.many(address + (32 if python.layout.version >= (3, 14) else 24), count)
    return list(found) if found is not None else None


def _names(python: Python, address: int) -> Optional[list[str]]:
    found = items(python, address, _MOST)
    if found is None:
        return None
    names = [python.objects.text(item, 256) for item in found]
    return [name if name is not None and name.isprintable() else "?" for name in names]
