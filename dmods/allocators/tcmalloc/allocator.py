"""tcmalloc, as dmods finds it."""

from dmods.allocators.protocol import Allocator
from dmods.allocators.tcmalloc.find import NAME, find_tcmallocs
from dmods.allocators.tcmalloc.samples import find_samples

# gperftools, docs/tcmalloc.html: it releases free spans slowly; a span with one object in use is never free.
_ADVICE = (
    "tcmalloc keeps it: MallocExtension::instance()->ReleaseFreeMemory() gives whole free spans back, "
    "and TCMALLOC_RELEASE_RATE=10 does so sooner."
)
_RELEASE = "MallocExtension::ReleaseFreeMemory(), or a smaller TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES"

ALLOCATOR = Allocator(NAME, find_tcmallocs, turn=32, place=32, advice=_ADVICE, release=_RELEASE, recording=find_samples)
