"""jemalloc, as dmods finds it."""

from __future__ import annotations

from typing import Optional

from dmods.allocators.jemalloc.find import find_jemallocs
from dmods.allocators.jemalloc.numbers import NAME
from dmods.allocators.protocol import Allocator, Found
from dmods.allocators.recording import Recording
from dmods.allocators.vocabulary import Declared
from dmods.base.ranges import Ranges
from dmods.target import Target


def _find(target: Target, taken: Ranges) -> Found:
    """Return every jemalloc of the process. They are found by the data of modules: ``taken`` is not needed."""
    del taken
    found = find_jemallocs(target)
    if not found.all:
        return Found([], found.notes)
    from dmods.allocators.jemalloc.heap import heaps_of

    return Found(heaps_of(found.all), found.notes)


def _recording(target: Target) -> Optional[Recording]:
    if not find_jemallocs(target).all:
        return None
    from dmods.allocators.jemalloc.profile import find_profile

    return find_profile(target)


def _declared() -> Declared:
    from dmods.allocators.jemalloc.report import DECLARED

    return DECLARED


# doc/jemalloc.xml.in: pages decay while threads allocate; without a background thread, nothing is purged after that.
_RELEASE = (
    "MALLOC_CONF=dirty_decay_ms:1000,muzzy_decay_ms:0,background_thread:true, or mallctl() with arena.<i>.purge: both "
    "give free pages back"
)

# It looks first: its memory may look like chunks of glibc, but not the other way round.
ALLOCATOR = Allocator(
    NAME,
    _find,
    turn=10,
    place=10,
    advice="jemalloc keeps it: MALLOC_CONF=dirty_decay_ms:1000,muzzy_decay_ms:0 gives it back sooner.",
    release=_RELEASE,
    recording=_recording,
    declared=_declared,
)
