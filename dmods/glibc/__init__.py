"""glibc's malloc as it lies in a dump, found by its shape: no symbols, no debug information, no table of releases.

* ``arenas``: ``malloc_state`` of the main arena (in libc's data) and of thread arenas (in their heaps), ``mp_``.
* ``runs``: the stretches of chunks that the engine walks.
* ``caches``: tcache and fastbins, whose chunks carry the in-use bit.

Offsets are taken relative to ``malloc_state.bins``, around which the fields have kept their order from ptmalloc2 to
glibc 2.43; what stands before it (fastbins until 2.42, ``have_fastchunks`` since 2.27) is told by where the ring of
arenas says the structure begins.
"""
