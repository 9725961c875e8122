"""Find musl's malloc in a process."""

from __future__ import annotations

from typing import Optional

from dmods import _engine
from dmods.allocators.musl import NAME
from dmods.allocators.protocol import Found, Heap
from dmods.base.progress import Progress
from dmods.base.ranges import Ranges
from dmods.base.regex import regex
from dmods.base.words import Words
from dmods.modules.data import module_data
from dmods.process import musl_threads
from dmods.target import Module, Target

_LIBC = regex(r"(?:^|/)(?:ld-musl-[^/]*|libc\.musl-[^/]*)$|-musl/libc\.so$")
_THREADS = 16  # whose libc is looked at
_BINS = 64  # of oldmalloc
_LEAST_BINS = 2  # that must be in use before oldmalloc is believed


def find(target: Target, owned: Ranges) -> Found:
    """Return the heaps of the process's mallocngs, and why the malloc of a musl that is there is not read."""
    image, word = target.image(), target.arch.word
    data = owned.without(module_data(target))
    inside = list(Ranges((mapping.start, mapping.end) for mapping in target.mappings()))
    heaps: list[Heap] = []
    for context in _engine.find_mallocngs(image, word, data):
        with Progress(f"reading {NAME}") as bar:
            read = _engine.Mallocng(image, word, context, inside, lambda done: bar.update(done, 0))
        if _is_sound(read):
            from dmods.allocators.musl.heap import make

            heaps.append(make(read, context[0]))
    if heaps:
        return Found(heaps)
    libc = next((module for module in target.modules() if _LIBC.search(module.path)), None)
    if libc is None and not _is_musl(target):
        return Found()
    refusal = _old_malloc(target, data) or (_unread(libc) if libc is not None else None)
    return Found([], [refusal] if refusal is not None else [])


def _is_musl(target: Target) -> bool:
    """Return whether a thread of the process is musl's: a program may be linked with it statically."""
    words, name = Words(target.image(), target.arch.word), target.arch.thread_pointer
    pointers = (thread.registers.get(name) for thread in target.threads()[:_THREADS])
    return any(pointer and musl_threads.pthread_at(words, target.arch, pointer) for pointer in pointers)


def _is_sound(read: _engine.Mallocng) -> bool:
    """Return whether the metas are believed: most of them describe a group that points back to them."""
    broken = sum(fault in ("fields", "place", "back", "overlap", "area") for fault, _at, _what in read.faults)
    return read.groups > 0 and broken <= read.groups


def _unread(libc: Module) -> str:
    return (
        f"{libc.name} is musl, but no word in the data of a module begins an area of metas, as the secret of mallocng "
        "does: its malloc was never used, is older than 1.2.1, or is not in the dump"
    )


def _old_malloc(target: Target, data: list[tuple[int, int]]) -> Optional[str]:
    """Return a note if the data holds the bins of oldmalloc, or None.

    ``struct bin`` is a lock of two ints, the first and the last chunk (src/malloc/oldmalloc/malloc.c). An empty bin
    that was in use points to itself, as if it were a chunk: two words before its first pointer.
    """
    words = Words(target.image(), target.arch.word)
    size, stride = words.size, 8 + 2 * words.size
    for start, end in data:
        places = set()
        values = words.many(start, min(end - start, 1 << 24) // size) or ()
        for index, (first, last) in enumerate(zip(values, values[1:])):
            at = start + index * size
            if first == last == at - 2 * size:
                places.add(at)
        for at in sorted(places):
            if sum(at + number * stride in places for number in range(_BINS)) >= _LEAST_BINS:
                return "old malloc of musl (oldmalloc), not walked: what its memory points to counts as reachable"
    return None
