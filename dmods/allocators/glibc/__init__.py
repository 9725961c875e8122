"""glibc's malloc in a dump, found by its shape: no symbols, no debug information, no table of releases.

* `arenas`: `malloc_state` of the main arena (in libc's data) and of thread arenas (in their heaps), and `mp_`.
* `runs`: the stretches of chunks that the engine walks.
* `bins`: the free lists of the arenas.
* `caches`: tcache and fastbins, whose chunks carry the in-use bit.

Offsets are relative to `malloc_state.bins`. The fields around it have kept their order from ptmalloc2 to glibc 2.43.
The fields before it differ (fastbins until 2.42, `have_fastchunks` since 2.27): the ring of arenas shows where the
structure begins.
"""
