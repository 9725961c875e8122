"""The greenlets of a process (greenlet 1.x to 3.x, so gevent and eventlet): the Python frames in which each waits.

A greenlet that waits keeps the frame object of its innermost frame. Until greenlet 1.x the pointer is in the object
itself (src/greenlet/greenlet.h: top_frame), since 2.0 in a structure of C++ to which the object leads and which leads
back (TGreenlet.hpp: pimpl, _self, PythonState._top_frame). Nothing else there leads to a frame object. While a greenlet
runs, before it has begun and after its end it keeps no frame (PythonState::operator>>).

Since CPython 3.12 a chain of frames passes frames on the C stack. greenlet moves the C stack of one that waits to the
heap where another needs the place (TStackState.cpp). {start, stop, copy, bytes saved} say where the bytes are now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.runtimes.python.memory import Type
from dmods.runtimes.python.runtime import MOST_FRAMES, Python, PythonFrame

GREENLET = "greenlet.greenlet"
_MOST_BASES = 64
_WORDS = 64  # of a greenlet, and of the structure behind it (3.2: 31)
_FRAME = 24  # f_frame of a frame object, since 3.11 (Include/internal/pycore_frame.h)
_OBJECT = slice(5, 7)  # the words of _PyInterpreterFrame that may be frame_obj: the 6th in 3.11, then the 7th
_MAIN = (1 << 64) - 1  # stack_stop of the first greenlet of a thread
_MOST_STACK = 1 << 40  # bytes


class Greenlet(NamedTuple):
    """A greenlet that waits, and its frames, the innermost first. ``problem``: why more of them are not known."""

    address: int
    type: str
    frames: list[PythonFrame]
    problem: Optional[str]


class _Moved(NamedTuple):
    """The C stack of a greenlet that waits: the first ``saved`` bytes from ``start`` on are at ``copy``."""

    start: int
    stop: int
    copy: int
    saved: int

    def place(self, address: int) -> int:
        """Return where the bytes are that belong to the address while the greenlet runs."""
        return address - self.start + self.copy if self.start <= address < self.start + self.saved else address


def is_greenlet_type(python: Python, kind: Optional[Type]) -> bool:
    """Return whether a type is that of greenlets, or inherits from it."""
    return _base(python, kind) is not None


def greenlet_at(python: Python, address: int, room: Callable[[int], int]) -> Optional[Greenlet]:
    """Return the greenlet at an address; None where none is, or where it does not wait.

    ``room`` says how many bytes there are from an address to the end of its block: what follows is another greenlet's.
    """
    kind = python.objects.type_of(address)
    base = _base(python, kind)
    if kind is None or base is None:
        return None
    for state in _states(python, address, base, room):
        for word in state:
            first = _frame(python, word)
            if first is not None:
                return _unwound(python, Greenlet(address, kind.name, [], None), first, state)
    return None


def _base(python: Python, kind: Optional[Type]) -> Optional[Type]:
    for _step in range(_MOST_BASES):
        if kind is None or kind.name == GREENLET:
            return kind
        kind = python.objects.type_at(kind.base) if kind.base else None
    return None


def _states(python: Python, address: int, base: Type, room: Callable[[int], int]) -> Iterator[Sequence[int]]:
    """Yield the words that may be the state of the greenlet: its own, then those of a structure that leads back."""
    words = python.objects.words
    own = words.many(address, min(base.basicsize // 8, _WORDS))
    if own is None:
        return
    yield own
    for word in own[2:]:
        # A weak reference and a bound method lead back as well, but they are objects.
        if word and word % 8 == 0 and python.objects.type_of(word) is None:
            behind = words.many(word, max(0, min(room(word) // 8, _WORDS))) or ()
            if address in behind:
                yield behind


def _frame(python: Python, address: int) -> Optional[int]:
    """Return the frame of the frame object at an address, as ``Python.chain`` takes it; None where none is."""
    kind = python.objects.type_of(address)
    if kind is None or kind.name != "frame":
        return None
    if python.layout.version <= (3, 10):
        return address
    frame = python.objects.words.at(address + _FRAME) or 0
    inner = python.objects.words.many(frame, 8) if frame else None
    return frame if inner is not None and address in inner[_OBJECT] else None


def _unwound(python: Python, found: Greenlet, first: int, state: Sequence[int]) -> Greenlet:
    """Return the greenlet with its frames. They pass the copy of its C stack where it has one, and where they need it:
    in the place of the C stack itself another greenlet may have frames that end rightly, too.
    """
    stacks = _stacks(state) if python.layout.version >= (3, 12) else ()
    for moved in stacks:
        stack = python.chain(first, MOST_FRAMES, moved.place)
        if any(frame.entry is not None and moved.place(frame.entry) != frame.entry for frame in stack.frames):
            return found._replace(frames=stack.frames, problem=stack.problem)
    stack = python.chain(first, MOST_FRAMES)
    return found._replace(frames=stack.frames, problem=stack.problem)


def _stacks(state: Sequence[int]) -> Iterator[_Moved]:
    """Yield what may say where the C stack of a greenlet was moved."""
    for at in range(len(state) - 3):
        start, stop, copy, saved = state[at : at + 4]
        if 4096 <= start < stop and copy and 0 < saved <= _MOST_STACK and (stop == _MAIN or saved <= stop - start):
            yield _Moved(start, stop, copy, saved)
