"""gperftools' tcmalloc in a dump, found by its shape: no symbols, no debug information, no table of releases.

* `find`: finds it.
* `heap`: one tcmalloc as the rest of dmods sees it.
* `own`: what tcmalloc took for itself.
* `samples`: who allocated the blocks that its sampler chose.
* `walked`: the engine's reading, shared by all.

The engine reads the structures (engine/core/src/allocators/tcmalloc). The layouts are those of gperftools
2.7 to 2.18, for 64-bit machines.
"""

NAME = "tcmalloc"
