"""Every tcmalloc of a process, walked once for its heap and for its samples."""

from __future__ import annotations

from typing import Optional

from dmods import _engine
from dmods.base.cached import cached
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.modules.data import module_data
from dmods.target import Target

_DEBUG = regex(r"(?:^|/)libtcmalloc(?:_minimal)?_debug[^/]*$")  # debugallocation.cc
_REACH = 64 << 10  # bytes of static TLS on either side of a thread pointer


class Walked(NamedTuple):
    """``refused`` are (address, the check that failed) of central caches that were found and are not read."""

    found: list[_engine.Tcmalloc]
    refused: list[tuple[int, str]]


@cached
def walked(target: Target) -> Walked:
    """Return each tcmalloc, wherever its variables lie. Only layouts of 64-bit machines are known."""
    if target.arch.word != 8 or debugging(target) is not None:
        return Walked([], [])
    threads = [
        part
        for thread in target.threads()
        for part in near(target, thread.registers.get(target.arch.thread_pointer, 0))
    ]
    return Walked(*_engine.find_tcmallocs(target.image(), list(module_data(target)), threads))


def debugging(target: Target) -> Optional[str]:
    """Return the name of the library if it is the debugging tcmalloc, which keeps a header in each block."""
    return next((module.name for module in target.modules() if _DEBUG.search(module.path)), None)


def near(target: Target, pointer: int) -> list[tuple[int, int]]:
    """Return the memory around a thread pointer in which the thread's own variables lie."""
    return list(target.image().covered(max(0, pointer - _REACH), pointer + _REACH)) if pointer else []
