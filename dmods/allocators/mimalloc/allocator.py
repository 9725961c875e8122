"""mimalloc, as dmods finds it."""

from dmods.allocators.mimalloc.find import NAME, find_mimallocs
from dmods.allocators.protocol import Allocator

# mimalloc.h: mi_collect(force); a page with one block in use is kept for blocks of that size.
_ADVICE = "mimalloc keeps it: mi_collect(true) gives whole free pages back."
_RELEASE = "mi_collect(true), or a shorter MIMALLOC_PURGE_DELAY (MIMALLOC_RESET_DELAY before 2.1)"

ALLOCATOR = Allocator(NAME, find_mimallocs, turn=31, place=31, advice=_ADVICE, release=_RELEASE)
