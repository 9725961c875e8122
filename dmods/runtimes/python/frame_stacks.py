"""The unused parts of the frame stacks of CPython's threads (3.11 and later).

Frames lie in chunks {previous, size, top, data} (Include/cpython/pystate.h: _PyStackChunk). A thread state has the last
chunk, where its free part begins, and where it ends. Nothing is cleared: what returned frames left there stays. Since
3.14 it also has a chunk that is kept for the next call, and holds nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from dmods.runtimes.python.runtime import Python, PythonThread

_STATE_WORDS = 64  # of PyThreadState that are searched for the last chunk
_MOST_CHUNK = 1 << 30
_MOST_CHUNKS = 10_000
_PAGE = 4096
_HEAD = 24  # bytes of a chunk before its data
_TOP = 64  # of _PyInterpreterFrame: stacktop, a number until 3.13; stackpointer since
_MOST_PLACES = 1 << 19


def unused_stacks(python: Python) -> list[tuple[int, int]]:
    """Return the parts of the frame stacks that keep nothing alive: memory behind the last frame of a chunk, and the
    places of a frame above the top of its value stack, where it is known. It is while it calls another Python function.
    """
    if python.layout.version < (3, 11):
        return []
    found: list[tuple[int, int]] = []
    for thread in python.threads:
        chunks = list(_chunks(python, thread))
        found += [(top, end) for _start, top, end in (*chunks, *_kept(python, thread)) if top < end]
        for frame in python.stack(thread).frames if chunks else ():
            if any(start <= frame.address < top for start, top, _end in chunks):
                found += _above_top(python, frame.address)
    return found


def _chunks(python: Python, thread: PythonThread) -> Iterator[tuple[int, int, int]]:
    """Yield (start, where its free part begins, end) of the chunks of a thread, the last first."""
    words = python.objects.words
    data = python.objects.image.read(thread.address, _STATE_WORDS * 8)
    state = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
    for last, free, limit in zip(state, state[1:], state[2:]):
        if not (0 < last < free <= limit <= last + _MOST_CHUNK and last % 16 == 0):
            continue
        size = words.at(last + 8)
        if size is None or last + size != limit:
            continue
        yield last, free, limit
        seen = {last}
        at = words.at(last) or 0
        while at and at not in seen and len(seen) < _MOST_CHUNKS:
            head = words.many(at, 3)
            if head is None or not _HEAD <= head[1] <= _MOST_CHUNK or not 0 <= head[2] <= (head[1] - _HEAD) // 8:
                break
            seen.add(at)
            yield at, at + _HEAD + 8 * head[2], at + head[1]
            at = head[0]


def _kept(python: Python, thread: PythonThread) -> Iterator[tuple[int, int, int]]:
    """Yield (start, where its free part begins, end) of the chunk that a thread keeps for later, if it has one.

    ``datastack_cached_chunk`` is the last member of PyThreadState in 3.14, and stands behind the other chunks in 3.15
    (Include/cpython/pystate.h).
    """
    layout, words = python.layout, python.objects.words
    if layout.version < (3, 14) or not layout.thread_size:
        return
    place = layout.thread_size - 8 if layout.version < (3, 15) else layout.chunk + 24
    at = words.at(thread.address + place) or 0
    head = words.many(at, 2) if at and at % _PAGE == 0 else None
    if head is not None and head[0] == 0 and head[1] % _PAGE == 0 and _HEAD <= head[1] <= _MOST_CHUNK:
        yield at, at + _HEAD, at + head[1]


def _above_top(python: Python, frame: int) -> list[tuple[int, int]]:
    """Return the places above the top of the frame's value stack, [] where the top is not known."""
    words, version = python.objects.words, python.layout.version
    code = (words.at(frame + python.layout.frame.code) or 0) & ~7
    if python.code(code) is None:
        return []
    locals_at, stack_at = (76, 68) if version < (3, 12) else (72, 64)  # co_nlocalsplus, co_stacksize
    local, stack = words.int32(code + locals_at), words.int32(code + stack_at)
    if local is None or stack is None or not (0 <= local <= _MOST_PLACES and 0 <= stack <= _MOST_PLACES):
        return []
    start = frame + (80 if version >= (3, 14) else 72)
    least, end = start + 8 * local, start + 8 * (local + stack)
    by_number = version < (3, 14)
    top = start + 8 * (words.int32(frame + _TOP) or 0) if by_number else words.at(frame + _TOP) or 0
    # Below the end of the locals: the frame is being cleared. Its other places are still in use.
    return [(top, end)] if start < top and least <= top < end and top % 8 == 0 else []
