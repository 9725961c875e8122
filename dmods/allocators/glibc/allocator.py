"""glibc's malloc, as dmods finds it."""

from dmods.allocators.glibc.heap import find_glibc
from dmods.allocators.glibc.state import NAME
from dmods.allocators.protocol import Allocator

# It looks after jemalloc, in the memory that is left.
ALLOCATOR = Allocator(NAME, find_glibc, turn=20, place=0)
