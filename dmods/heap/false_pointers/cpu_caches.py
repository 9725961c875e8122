"""Sizes of the CPU's caches in libc's data, where these numbers are also addresses of the heap.

ld.so finds the sizes (sysdeps/x86/dl-cacheinfo.h) and keeps them in its read-only memory; libc.so has copies, and the
halves of some (sysdeps/x86/cacheinfo.h: ``__x86_shared_cache_size``). A static program finds them itself, and has all
of that among its own data. There they are found by their shape: ``struct cpu_features`` of glibc 2.33 and later
(sysdeps/x86/include/cpu-features.h) has size and line of the first level's instructions, then size, ways and line of
each level.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice

from dmods.allocators.search import Search
from dmods.heap.false_pointers.linker import loader_read_only
from dmods.modules.auxv import AT_BASE
from dmods.target import AddressRange

_MOST_PIECES = 16  # of ld.so, or of a static program
_MOST_PLACES = 64  # that look like the sizes of caches
_KIB = 1024
_LARGEST = 64 << 20  # bytes of the second level
_BEFORE, _AFTER = 8, 12  # words before and from the first line on that are such sizes as well


def cache_sizes(search: Search) -> Iterator[tuple[int, int]]:
    """Yield words of libc's data that look like pointers and are sizes of the CPU's caches, or half of one."""
    if not search.low:
        return
    if search.target.auxv.get(AT_BASE):
        places = search.roots_in(search.module_data("libc[.-]"))
        numbers = _numbers(search, islice(search.roots_in(loader_read_only(search)), _MOST_PIECES))
    else:
        places = search.roots_in((piece.start, piece.end) for piece in islice(_pieces(search), _MOST_PIECES))
        numbers = _numbers(search, islice(_features(search, places), _MOST_PLACES))
    numbers |= {number // 2 for number in numbers if number % 2 == 0}
    sizes = [(number, number + 1) for number in sorted(numbers) if number in search.low]
    for at, number in search.lookalikes(places, sizes):
        # A static program's own pointers are there, too. One to the beginning of a block is kept.
        if search.target.auxv.get(AT_BASE) or search.leads_inside(number):
            yield search.word_range(at)


def _numbers(search: Search, ranges: Iterable[tuple[int, int]]) -> set[int]:
    """Return the words in the ranges."""
    word, numbers = search.target.arch.word, set[int]()
    for _at, data in search.windows(ranges):
        numbers.update(array("Q" if word == 8 else "I", data[: len(data) // word * word]))
    return numbers


def _pieces(search: Search) -> Iterator[AddressRange]:
    """Yield the memory of the program, without code. Its variables that are read-only by now were written once, too."""
    for module in search.target.modules():
        yield from (piece for piece in module.ranges if "x" not in piece.flags)


def _features(search: Search, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the places that have three levels of caches where ``struct cpu_features`` has them."""
    word = search.target.arch.word
    line = b"([\x20\x40\x80]" + b"\0" * (word - 1) + b")"
    between = b".{%d}" % (2 * word)  # size and ways of the next level
    pattern = re.compile(b"(?s)(?=" + line + 2 * (between + b"\\1") + b")")
    for at, data in search.windows(ranges):
        for match in pattern.finditer(data):
            first = at + match.start()
            if match.start() % word == 0 and _are_levels(search, first):
                yield first - _BEFORE * word, first + _AFTER * word


def _are_levels(search: Search, first: int) -> bool:
    """Return whether sizes and ways stand around the first line: KiB, each level larger than the one before."""
    word = search.target.arch.word
    instructions, data, ways, second, more_ways = (search.word(first + at * word) for at in (-1, 1, 2, 4, 5))
    sizes = (instructions, data, second)
    return (
        all(size % _KIB == 0 and 0 < size <= _LARGEST for size in sizes)
        and max(instructions, data) < second
        and max(ways, more_ways) < _KIB
    )
