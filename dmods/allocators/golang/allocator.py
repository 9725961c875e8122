"""Go's own heap, as dmods finds it."""

from __future__ import annotations

from dmods.allocators.golang import NAME
from dmods.allocators.protocol import Allocator, Found
from dmods.allocators.vocabulary import Declared
from dmods.base.ranges import Ranges
from dmods.modules.golang.moduledata import go_modules
from dmods.target import Target

_ADVICE = "debug.FreeOSMemory() gives free spans back; GOGC and GOMEMLIMIT decide how much Go keeps."


def _find(target: Target, taken: Ranges) -> Found:
    """Return the heap of the Go runtime in the process, if there is Go code."""
    if not go_modules(target):
        return Found()
    from dmods.allocators.golang.heap import find_go

    return find_go(target, taken)


def _declared() -> Declared:
    from dmods.allocators.golang.objects import OBJECT

    return Declared(of_block=(OBJECT,))


ALLOCATOR = Allocator(NAME, _find, turn=34, place=34, advice=_ADVICE, declared=_declared)
