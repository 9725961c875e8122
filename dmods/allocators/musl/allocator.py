"""musl's malloc, as dmods finds it."""

from dmods.allocators.musl import NAME
from dmods.allocators.musl.find import find
from dmods.allocators.protocol import Allocator

# mallocng, free.c: a group is unmapped, or goes back to the group that holds it, when its last slot is freed.
_ADVICE = "musl gives a group of blocks back only when all of them are free."
_RELEASE = "musl gives pages back where whole groups are free: free blocks of one size together"

ALLOCATOR = Allocator(NAME, find, turn=30, place=30, advice=_ADVICE, release=_RELEASE)
