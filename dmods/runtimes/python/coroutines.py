"""Coroutines and generators that wait: the frames that no thread has on its stack, and what each waits for.

A coroutine awaits what lies on top of its value stack, or since 3.15 below that (``_PyGen_yf``, Objects/genobject.c).
Where its frame lies:

* until 3.10 a frame object, to which ``gi_frame`` leads. Without one the coroutine has ended;
* since 3.11 in the coroutine itself, behind its state (``gi_frame_state``, Include/internal/pycore_genobject.h).
"""

from __future__ import annotations

from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.runtimes.python.frame_locals import frame_locals
from dmods.runtimes.python.runtime import Python, PythonFrame

WAITS, RUNS, NEW = "waits", "runs", "has not begun"
KINDS = ("coroutine", "generator", "async_generator")
#: Objects that lead to the coroutine that they await, by the offset of the pointer.
_BETWEEN = ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable")
_FUTURE_ITERATOR = "_asyncio.FutureIter"
_FIRST = 16  # where all of these have that pointer
_MOST = 1000  # coroutines of a chain
_SUSPENDED, _YIELDING_FROM, _EXECUTING = (1, 2, 3), (2, 3), 4  # gi_frame_state since 3.15; 0: new, 5: ended
_RESUME_AFTER_YIELD_FROM = 2  # Include/internal/pycore_opcode_utils.h, of 3.11 and 3.12
_YIELD_FROM = 72  # the instruction, until 3.10 (Include/opcode.h)


class Waiting(NamedTuple):
    """A coroutine or a generator that has not ended. ``awaits`` is the object that it waits for, where there is one."""

    kind: str
    state: str
    frame: PythonFrame
    awaits: Optional[int]


class Chain(NamedTuple):
    """The coroutines that wait for each other, the innermost first. ``end`` is what the innermost waits for.

    ``problem`` says why there are no more, where that is no proper end.
    """

    state: str
    frames: list[PythonFrame]
    end: Optional[int]
    problem: Optional[str] = None


def waiting_at(python: Python, address: int) -> Optional[Waiting]:
    """Return the coroutine or generator at an address; None where none is, or where it has ended."""
    kind = python.objects.type_of(address)
    if kind is None or kind.name not in KINDS:
        return None
    version, words = python.layout.version, python.objects.words
    if version <= (3, 10):
        at, state = words.at(address + _FIRST) or 0, ""
        holder = python.objects.type_of(at)
        if holder is None or holder.name != "frame":
            return None
        state = _old_state(python, at)
    else:
        at = address + kind.basicsize - (80 if version >= (3, 14) else 72)
        # gi_frame_state, an int8, is the fifth byte before gi_iframe: three flags, the state, padding.
        state = _state(python, at - 5)
    frame = python.frame_at(at) if state else None
    if frame is None:
        return None
    awaits = _top(python, frame) if state == WAITS else None
    if awaits is not None and kind.name == "generator" and not _yields_from(python, address, frame):
        awaits = None
    return Waiting(kind.name, state, frame, awaits)


def chain_of(python: Python, address: int) -> Optional[Chain]:
    """Return the coroutines from the one at an address to the innermost that it waits for; None where it has ended."""
    frames: list[PythonFrame] = []
    seen: set[int] = set()
    state, at = "", address
    while len(seen) < _MOST:
        if at in seen:
            return Chain(state, frames[::-1], None, f"the coroutines lead in a circle at {at:#x}")
        seen.add(at)
        found = waiting_at(python, at)
        if found is not None:
            frames.append(found.frame)
            state = state or found.state
            if found.awaits is None:
                return Chain(state, frames[::-1], None)
            at = found.awaits
            continue
        kind = python.objects.type_of(at)
        if not frames:
            return None
        if kind is None or kind.name not in _BETWEEN:
            return Chain(state, frames[::-1], at if kind is not None else None)
        at = python.objects.words.at(at + _FIRST) or 0
    return Chain(state, frames[::-1], None, f"the limit of {_MOST} coroutines was reached")


def future_of(python: Python, address: int) -> int:
    """Return the future of an iterator that `await` has made of it, or the address itself."""
    kind = python.objects.type_of(address)
    if kind is not None and kind.name == _FUTURE_ITERATOR:
        return python.objects.words.at(address + _FIRST) or address
    return address


def _state(python: Python, at: int) -> str:
    """Return the state by gi_frame_state (enum _framestate, Include/internal/pycore_frame.h).

    Until 3.14 the least number is new, others below 0 wait, 0 runs, the rest have ended.
    """
    data = python.objects.image.read(at, 1)
    if python.layout.version >= (3, 15):
        number = data[0] if data else -1
        return NEW if number == 0 else WAITS if number in _SUSPENDED else RUNS if number == _EXECUTING else ""
    number = int.from_bytes(data, "little", signed=True) if data else 1
    new = -3 if python.layout.version >= (3, 13) else -2
    return NEW if number == new else WAITS if new < number < 0 else RUNS if number == 0 else ""


def _old_state(python: Python, frame: int) -> str:
    """Return the state by f_state (3.10), or by f_lasti and f_executing (3.9) of a frame object."""
    if python.layout.version == (3, 10):
        number = int.from_bytes(python.objects.image.read(frame + 108, 1) or b"\1", "little", signed=True)
        return {-2: NEW, -1: WAITS, 0: RUNS}.get(number, "")
    if python.objects.image.read(frame + 116, 1) == b"\1":
        return RUNS
    return NEW if python.objects.words.int32(frame + 104) == -1 else WAITS


def _top(python: Python, frame: PythonFrame) -> Optional[int]:
    """Return the object on top of the value stack of a frame that waits, or None."""
    version, words, at = python.layout.version, python.objects.words, frame.address
    places = frame_locals(python, at, frame.code.address)
    if places is None:
        return None
    first = places.start + 8 * len(places.names)
    if version <= (3, 9):
        top = words.at(at + 72) or 0  # f_stacktop
    elif version == (3, 10):
        top = (words.at(at + 64) or 0) + 8 * (words.int32(at + 80) or 0)  # f_valuestack, f_stackdepth
    elif version <= (3, 13):
        top = places.start + 8 * (words.int32(at + 64) or 0)  # stacktop
    else:
        top = words.at(at + 64) or 0  # stackpointer
    # Since 3.15 an index stands above what `await` and `yield from` wait for (_PyEval_GetIter, Python/ceval.c).
    place = top - (16 if version >= (3, 15) else 8)
    if not first <= place < places.end or top > places.end or top % 8:
        return None
    value = (words.at(place) or 0) & ~7  # since 3.14 the lower bits are flags
    return value if python.objects.type_of(value) is not None else None


def _yields_from(python: Python, generator: int, frame: PythonFrame) -> bool:
    """Return whether a generator that waits does so in `yield from` or `await`, not in `yield`."""
    version, image = python.layout.version, python.objects.image
    if version >= (3, 13):  # FRAME_SUSPENDED_YIELD_FROM is a state of its own; since 3.15 it may be locked
        state = image.read(frame.address - 5, 1)
        return state[:1] == b"\xff" if version < (3, 15) else state != b"" and state[0] in _YIELDING_FROM
    last = python.layout.frame.last
    if version >= (3, 11):  # the next instruction is RESUME, whose argument tells
        following = image.read((python.objects.words.at(frame.address + last) or 0) + 2, 2)
        return len(following) == 2 and following[1] & 3 >= _RESUME_AFTER_YIELD_FROM
    place = python.objects.words.int32(frame.address + last)
    code = python.objects.raw(python.objects.words.at(frame.code.address + 48) or 0) or b""
    at = (place + 1) * 2 if version == (3, 10) and place is not None else (place or 0) + 2
    return code[at : at + 1] == bytes([_YIELD_FROM])
