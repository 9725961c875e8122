"""glibc's malloc, as dmods finds it."""

from dmods.allocators.glibc.heap import find_glibc
from dmods.allocators.glibc.state import NAME
from dmods.allocators.protocol import Allocator
from dmods.allocators.vocabulary import Declared


def _declared() -> Declared:
    from dmods.allocators.glibc.report import ARENAS

    return Declared((ARENAS,))


# It looks after jemalloc, in the memory that is left.
ALLOCATOR = Allocator(NAME, find_glibc, turn=20, place=0, declared=_declared)
