"""mimalloc's heaps (2.0.3 to 2.4, 3.0 and later), found and read without symbols or debug information.

* `find`: where segments and page maps are looked for; what is said where none can be proven.
* `serving`: whether malloc() of the process is that mimalloc.
* `heap`: one mimalloc as the rest of dmods sees it.

The engine reads the pages (`heap/mimalloc`).
"""
