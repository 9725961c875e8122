"""jemalloc's heaps (5.1.0 to 5.3.1), found and read without symbols or debug information.

* ``sizes``: the size classes, which are arithmetic.
* ``layouts``: where things stand in each release, as tables; a table is believed when its checks hold.
* ``find``: the radix tree of extents, and the memory that jemalloc keeps for itself.
* ``caches``: every thread's tcache, whose blocks are free though their slabs say otherwise.
"""
