"""jemalloc, as dmods finds it."""

from dmods.allocators.jemalloc.heap import find
from dmods.allocators.jemalloc.numbers import NAME
from dmods.allocators.jemalloc.profile import find_profile
from dmods.allocators.protocol import Allocator

# It looks first: its memory may look like chunks of glibc, but not the other way round.
ALLOCATOR = Allocator(
    NAME,
    find,
    turn=10,
    place=10,
    advice="jemalloc keeps it: MALLOC_CONF=dirty_decay_ms:1000,muzzy_decay_ms:0 gives it back sooner.",
    recording=find_profile,
)
