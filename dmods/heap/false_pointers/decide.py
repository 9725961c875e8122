"""The one place that decides which words among the roots are false pointers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Callable

from dmods.base.ranges import Ranges
from dmods.heap.false_pointers import glibc, kernel, leftovers, linker
from dmods.heap.false_pointers.search import Search

# Each rule yields ranges of the roots that hold no pointer. Their order does not matter: a word that one rule names is
# no pointer, whatever the others say. A new rule is one entry here.
RULES: Sequence[Callable[[Search], Iterator[tuple[int, int]]]] = (
    kernel.execve_text,
    linker.unchanged_data,
    linker.loader_read_only,
    linker.cache_sizes,
    linker.version_hashes,
    glibc.guard_words,
    glibc.tcache_keys,
    glibc.encrypted_pointers,
    glibc.random_tables,
    glibc.stack_sizes,
    leftovers.malloc_sizes,
    leftovers.jemalloc_breaks,
    leftovers.jemalloc_leaf_keys,
    leftovers.half_overwritten,
)


def without_false_pointers(search: Search) -> list[tuple[int, int]]:
    """Return the roots without the words that any rule calls a false pointer."""
    return Ranges(found for rule in RULES for found in rule(search)).without(search.roots)
