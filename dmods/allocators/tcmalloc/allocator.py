"""tcmalloc, as dmods finds it."""

from __future__ import annotations

from typing import Optional

from dmods.allocators.protocol import Allocator
from dmods.allocators.recording import Recording
from dmods.allocators.tcmalloc import NAME
from dmods.allocators.tcmalloc.find import find_tcmallocs
from dmods.allocators.tcmalloc.walked import walked
from dmods.target import Target

# gperftools, docs/tcmalloc.html: it releases free spans slowly; a span with one object in use is never free.
_ADVICE = (
    "tcmalloc keeps it: MallocExtension::instance()->ReleaseFreeMemory() gives whole free spans back, "
    "and TCMALLOC_RELEASE_RATE=10 does so sooner."
)
_RELEASE = "MallocExtension::ReleaseFreeMemory(), or a smaller TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES"


def _recording(target: Target) -> Optional[Recording]:
    if not walked(target).found:
        return None
    from dmods.allocators.tcmalloc.samples import find_samples

    return find_samples(target)


ALLOCATOR = Allocator(NAME, find_tcmallocs, turn=32, place=32, advice=_ADVICE, release=_RELEASE, recording=_recording)
