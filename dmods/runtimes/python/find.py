"""Find CPython in a process. Its interpreters are read, by other modules, only where it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from dmods.base.cached import cached
from dmods.modules.find import writable_segments
from dmods.runtimes.python import COOKIE
from dmods.target import Target

if TYPE_CHECKING:
    from dmods.runtimes.python.runtime import Python

_STEP = 1 << 20


class FoundPython:
    """The result of a search for CPython: the interpreters, or why they were not found although its data is there."""

    def __init__(self, python: Optional[Python] = None, refusal: Optional[str] = None, *, started: bool = True) -> None:
        self.python = python
        self.refusal = refusal
        self.started = started  # False: the program is linked with libpython and never used it


@cached
def find_python(target: Target) -> FoundPython:
    """Return the CPython of the process."""
    if target.arch.word != 8 or not target.arch.little_endian:
        return FoundPython()
    symbol = target.lookup("_PyRuntime")
    at = symbol.address if symbol is not None else _cookie(target)
    if at is None:
        return FoundPython(refusal=_without_file(target))
    from dmods.runtimes.python.layout import NotStarted, Refused
    from dmods.runtimes.python.runtime import open_python

    try:
        return FoundPython(open_python(target, at))
    except NotStarted as idle:
        return FoundPython(refusal=str(idle), started=False)
    except Refused as refused:
        return FoundPython(refusal=str(refused))


def _without_file(target: Target) -> Optional[str]:
    names = [module.name for module in target.modules() if module.name.startswith(("libpython3", "python3"))]
    return f"{names[0]}: its file is not on this machine, so _PyRuntime is not found" if names else None


def _cookie(target: Target) -> Optional[int]:
    """Return where the cookie of _PyRuntime lies (3.13 and later), where no symbol tells."""
    image = target.image()
    # A damaged header may claim any size: only what is in the dump is read.
    parts = (part for start, end in writable_segments(target) for part in image.covered(start, end))
    for start, end in parts:
        for at in range(start, end, _STEP):
            data = image.read(at, min(_STEP + 8, end - at))
            place = data.find(COOKIE)
            while place >= 0:
                if (at + place) % 8 == 0 and len(image.read(at + place, 24)) == 24:
                    return at + place
                place = data.find(COOKIE, place + 1)
    return None
