"""jemalloc's heaps (5.1.0 to 5.3.1), found and read without symbols or debug information.

* `sizes`: the size classes, which follow from arithmetic.
* `layouts`: the offsets of each release, as tables; a table is believed when its checks hold.
* `find`: the radix tree of extents, and the memory that jemalloc keeps for itself.
* `caches`: the tcaches of threads, whose blocks are free although their slabs count them as in use.
* `heap`: what the process heap asks of a jemalloc.
* `stats`: the figures of malloc_stats_print().
"""
