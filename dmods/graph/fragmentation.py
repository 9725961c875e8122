"""Say in a sentence that an allocator's memory grew far more than the blocks in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dmods.base.sizes import human_size
from dmods.graph.growth import Memory
from dmods.heap.process_heap import ProcessHeap

_MUCH = 1 << 20  # bytes of growth that are worth a sentence
_MANY_ARENAS = 4
_GLIBC, _JEMALLOC = "glibc", "jemalloc"
#: How the memory that an allocator keeps can be given back.
_ADVICE = {
    _GLIBC: "malloc_trim(0) gives whole free pages back; between blocks in use they are fragments.",
    _JEMALLOC: "jemalloc keeps it: MALLOC_CONF=dirty_decay_ms:1000,muzzy_decay_ms:0 gives it back sooner.",
    # gperftools, docs/tcmalloc.html: it releases free spans slowly; a span with one object in use is never free.
    "tcmalloc": "tcmalloc keeps it: MallocExtension::instance()->ReleaseFreeMemory() gives whole free spans back, "
    "and TCMALLOC_RELEASE_RATE=10 does so sooner.",
    # mimalloc.h: mi_collect(force); a page with one block in use is kept for blocks of that size.
    "mimalloc": "mimalloc keeps it: mi_collect(true) gives whole free pages back.",
    # mallocng, free.c: a group is unmapped, or goes back to the group that holds it, when its last slot is freed.
    "musl's malloc": "musl gives a group of blocks back only when all of them are free.",
    # Objects/obmalloc.c: arenas are freed whole, and only a pool without objects serves other sizes.
    "pymalloc": "CPython gives an arena of pymalloc back only when all objects in it are freed.",
    "Go": "debug.FreeOSMemory() gives free spans back; GOGC and GOMEMLIMIT decide how much Go keeps.",
}


def fragmentation(memory: Sequence[Memory], heaps: Sequence[ProcessHeap]) -> list[str]:
    """Return a sentence where the memory of the heap grew far more than the blocks in use, with advice; or nothing.

    An allocator that reserves its memory at once (mimalloc 3: a gigabyte) maps no more later. There the blocks that it
    made, free ones included, are what grew.
    """
    before, after = memory[0], memory[-1]
    mapped, used, free = after.mapped - before.mapped, after.in_use - before.in_use, after.free - before.free
    grown = mapped or used + free
    if grown < _MUCH or used * 2 > grown:
        return []
    unused = after.rest + after.top - before.rest - before.top
    rest = f", headers, tops and unused memory by {human_size(unused)}" if mapped else ""
    text = (
        f"The {'memory of the heap' if mapped else 'blocks of the heap, free ones included,'} grew by "
        f"{human_size(grown)}, the blocks in use by {human_size(used)}: "
        f"this is fragmentation or memory kept for later, not a leak. Free blocks grew by {human_size(free)}{rest}."
    )
    return [f"{text} {_advice(heaps)}"]


def _advice(heaps: Sequence[ProcessHeap]) -> str:
    """Return how to get the memory back, for the allocator that grew most."""
    first, last = _owned(heaps[0]), _owned(heaps[-1])
    name = max(last, key=lambda name: (last[name] - first[name], last[name]), default=_GLIBC)
    arenas = len(heaps[-1].arenas)
    if name == _GLIBC and arenas > _MANY_ARENAS:
        return f"{arenas} arenas keep it: start with MALLOC_ARENA_MAX=2, or call malloc_trim(0) now and then."
    return _ADVICE.get(name, f"{name} keeps it.")


def _owned(heap: ProcessHeap) -> Counter[str]:
    """Return the bytes of address space of each allocator."""
    found: Counter[str] = Counter()
    found[_GLIBC] = sum(end - start for start, end in heap.layout.owned)
    for one in heap.jemallocs:
        found[_JEMALLOC] += sum(end - start for start, end in one.owned)
    for walked in heap.walked:
        found[walked.name] += sum(end - start for start, end in walked.owned)
    return found
