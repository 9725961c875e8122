"""CPython's pymalloc, as dmods finds it."""

from dmods.allocators.protocol import Allocator
from dmods.allocators.pymalloc import NAME
from dmods.allocators.pymalloc.find import find_pymalloc

# Objects/obmalloc.c: arenas are freed whole, and only a pool without objects serves other sizes.
_ADVICE = "CPython gives an arena of pymalloc back only when all objects in it are freed."

ALLOCATOR = Allocator(NAME, find_pymalloc, turn=33, place=33, advice=_ADVICE)
