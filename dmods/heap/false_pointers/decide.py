"""The rules that decide which words among the roots are false pointers.

Four other places decide about words that this one cannot see, because they lie in blocks as well:

* ``engine/core/src/blocks/text.rs``: words that are part of a text. The pass over the bytes leaves them out.
* ``engine/core/src/blocks/ends.rs``: words that are the end of one block and by chance the beginning of the next. They
  are hidden while marking. A block that only they hold is doubtful.
* ``Heap.dead`` of an allocator, ``process/stdio.py``, ``process/found_objects.py``, ``process/name_service.py`` and
  ``heap/collector.py``: words that an allocator, glibc's stdio or name service, ld.so or CPython wrote into its own
  structures, or left there from an earlier use of the memory. ``index.find_start`` takes them out before the pass.
* ``heap/dead_stacks.py``: all words below a stack pointer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Callable

from dmods.allocators.protocol import Heap
from dmods.allocators.search import Search
from dmods.base.ranges import Ranges
from dmods.heap.false_pointers import cpu_caches, kernel, leftovers, libc, linker

# Each rule yields ranges of the roots that hold no pointer. Their order does not matter: a word that one rule names is
# no pointer, whatever the others say. A new rule is one entry here. What an allocator wrote, its `false_words` name.
RULES: Sequence[Callable[[Search], Iterator[tuple[int, int]]]] = (
    kernel.execve_text,
    linker.unchanged_data,
    linker.loader_read_only,
    cpu_caches.cache_sizes,
    linker.version_hashes,
    libc.guard_words,
    libc.encrypted_pointers,
    libc.random_tables,
    libc.stack_sizes,
    leftovers.half_overwritten,
)


def without_false_pointers(search: Search, heaps: Sequence[Heap]) -> list[tuple[int, int]]:
    """Return the roots without the words that any rule calls a false pointer, or the allocator that wrote them."""
    found = Ranges(found for rule in RULES for found in rule(search))
    for heap in heaps:
        for start, end in heap.false_words(search):
            found.add(start, end)
    return found.without(search.roots)
