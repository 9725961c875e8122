"""The holder of the GIL. Until 3.11 a process has one; since 3.12 an interpreter may have its own (PEP 684).

struct _gil_runtime_state has {interval, last_holder, locked, switch_number, ...} (Include/internal/pycore_gil.h). It is
in _PyRuntime until 3.11, then in the state of an interpreter, and every interpreter points to the one that it uses
(ceval.gil). Since 3.13 the table for debuggers says where. Before, the structure proves itself: its last holder is a
thread of Python, between an interval and a flag. take_gil() sets both `last_holder` and `locked`; drop_gil() clears
`locked` alone (Python/ceval_gil.c).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.runtimes.python.runtime import Python, PythonThread

# The words that are searched of _PyRuntime (3.11: it is at 0x168), or of the state of an interpreter (3.12: at 0x410).
_WORDS = 512
_INTERVAL = range(1, 10**9)  # microseconds: sys.setswitchinterval
_NAMED = 3  # interpreters
_HOLDER, _LOCKED = 8, 16  # in the structure, until 3.12


class Gil(NamedTuple):
    """A GIL: the interpreters that share it, and the thread that holds it. None: no thread does."""

    address: int
    interpreters: list[int]
    holder: Optional[PythonThread]


def find_gils(python: Python) -> list[Gil]:
    """Return the GILs of the process, that of the first interpreter first; [] where none is proved."""
    known = {thread.address: thread for thread in python.threads}
    users: dict[int, list[int]] = {}
    for interpreter, at in _gils(python, known):
        users.setdefault(at, []).append(interpreter)
    found = (_read(python, known, at, interpreters) for at, interpreters in users.items())
    return [gil for gil in found if gil is not None]


def gil_name(gil: Gil, gils: Sequence[Gil]) -> str:
    """Return "the GIL", with its interpreters where there are several GILs."""
    if len(gils) == 1:
        return "the GIL"
    named = ", ".join(f"{interpreter:#x}" for interpreter in gil.interpreters[:_NAMED])
    more = f" and {len(gil.interpreters) - _NAMED} more" if len(gil.interpreters) > _NAMED else ""
    return f"the GIL of interpreter{'' if len(gil.interpreters) == 1 else 's'} {named}{more}"


def _gils(python: Python, known: dict[int, PythonThread]) -> Iterator[tuple[int, int]]:
    """Yield each interpreter with the address of its GIL."""
    if python.layout.gil is not None:
        for interpreter in python.interpreters:
            at = python.objects.words.at(interpreter + python.layout.gil.pointer)
            if at:
                yield interpreter, at
        return
    if python.layout.version <= (3, 11):
        (only,) = _proved(python, python.runtime, known)[:1] or [0]
        yield from ((interpreter, only) for interpreter in python.interpreters if only)
        return
    own = {at for interpreter in python.interpreters for at in _proved(python, interpreter, known)[:1]}
    for interpreter in python.interpreters:
        pointers = [word for word in _words(python, interpreter) if word in own]
        if len(set(pointers)) == 1:
            yield interpreter, pointers[0]


def _proved(python: Python, start: int, known: dict[int, PythonThread]) -> list[int]:
    """Return the addresses of what may be the structure of a GIL. The first threads of an interpreter look alike."""
    words, found = _words(python, start), []
    head = (python.layout.threads_head or 0) - _HOLDER
    for number in range(len(words) - 3):
        offset = 8 * number
        holder, locked = words[number + 1], words[number + 2] & 0xFFFFFFFF
        is_head = any(start + offset == interpreter + head for interpreter in python.interpreters)
        if words[number] in _INTERVAL and holder in known and locked <= 1 and words[number + 3] and not is_head:
            found.append(start + offset)
    return found


def _words(python: Python, start: int) -> memoryview:
    data = python.objects.image.read(start, 8 * _WORDS)
    return memoryview(data[: len(data) // 8 * 8]).cast("Q")


def _read(python: Python, known: dict[int, PythonThread], at: int, interpreters: list[int]) -> Optional[Gil]:
    """Return the GIL at an address; None where the dump lacks it, or a thread holds it that is in no list."""
    layout, words = python.layout.gil, python.objects.words
    locked = words.int32(at + (layout.locked if layout is not None else _LOCKED))
    holder = words.at(at + (layout.holder if layout is not None else _HOLDER))
    if locked not in (0, 1) or holder is None or (locked and holder not in known):
        return None
    return Gil(at, interpreters, known[holder] if locked else None)
