"""The arrays in which CPython keeps freed objects for reuse (until 3.13).

There is one for lists, for dictionaries, for tables of dictionaries, and for two types of asynchronous generators. Each
has 80 slots, and a count of those in use (``free_list`` and ``numfree``, Include/internal/pycore_list.h, pycore_dict.h
and pycore_genobject.h; in 3.13 in pycore_freelist.h). A slot is not cleared when its object is taken: the pointer
stays, whatever becomes of that memory. Nor is a table cleared when it is kept: that of a dictionary that grew still has
a reference, and pointers to all keys and values.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods._engine import CollectorLinks
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.process.addresses import module_at
from dmods.runtimes.python import STATE
from dmods.runtimes.python.free_lists import DICTS, LISTS, SLOTS, TABLES, are_slots, arrays_in, kind_of
from dmods.runtimes.python.memory import DICT, LIST
from dmods.runtimes.python.runtime import Python

_LEAST = 1 << 32  # arenas come from mmap()
_ALIGNED = 32  # gcc aligns variables of that size and larger ones so, on x86-64
_MOST_BETWEEN = 2  # words between a count and the next array: numbers of versions, in 3.12
_COUNTS = 0x7F_0000_007F  # the bits of two ints that count slots
# The smallest table: until 3.10 it has 5 entries of 24 bytes, then of 16 bytes. pymalloc rounds up to 16 bytes.
_SMALL_OLD_BYTES, _SMALL_BYTES = 176, 128
_TABLE_HEAD = 16  # bytes before the numbers of entries
# What an array of 3.9 keeps: the flag of its type, the bytes before an object (PyGC_Head), and those of a slot.
_OLD_KINDS = ((LISTS, LIST, 16, 64), (DICTS, DICT, 16, 64), (TABLES, 0, 0, _SMALL_OLD_BYTES))
_LEAST_ALIKE = 8  # slots in memory of one size
_POOL, _POOL_HEAD = 4096, 48  # bytes of a pool of pymalloc until 3.9, and of its head


class _Arrays(NamedTuple):
    """Arrays among words: (where each begins, its slots in use), where the counts end, and what the first one keeps."""

    arrays: list[tuple[int, int]]
    end: int
    kind: Optional[int]


def old_slots(python: Python, links: Optional[CollectorLinks]) -> list[tuple[int, int]]:
    """Return the slots that are not in use, and what kept tables had, as ranges. ``links`` are the collector's.

    All free lists of an interpreter prove each other. Where they do not stand as expected, a free object proves an
    array, and one without must be next to one that is proven.
    """
    if python.layout.version >= (3, 14):
        return []  # the free lists are linked
    module = module_at(python.target, python.runtime)
    data = [(part.start, part.end) for part in module.ranges if "w" in part.flags] if module is not None else []
    size = _SMALL_BYTES if python.layout.version >= (3, 11) else _SMALL_OLD_BYTES
    old = python.layout.version < (3, 10)
    found: list[tuple[int, int]] = []
    for start, end in Ranges([*data, *(() if old else ((at, at + STATE) for at in python.interpreters))]):
        for first, last in python.objects.image.covered(start, end):
            held = python.objects.image.read(first, (last - first) // 8 * 8)
            words = array("Q", held[: len(held) // 8 * 8])
            if old:
                for kind, at, count in _in_variables(python, words, first, data, links):
                    found.append((first + 8 * (at + count), first + 8 * (at + SLOTS)))
                    # One with a reference may be that of a dictionary without containers, which is not tracked. A
                    # thread may be about to free the last one: the engine, which knows all stacks, decides.
                    sure = words[at : at + max(count - 1, 0)]
                    kept = [table for table in sure if not python.objects.refcount(table)]
                    found += ((table + _TABLE_HEAD, table + size) for table in kept if kind == TABLES)
                continue
            arrays = list(arrays_in(python, words)) or _proven(list(_in_words(python, words)))
            for kind, at, count in arrays:
                found.append((first + 8 * (at + count), first + 8 * (at + SLOTS)))
                if kind == TABLES:
                    found += ((table + _TABLE_HEAD, table + size) for table in words[at : at + count])
    return found


def _in_variables(
    python: Python,
    words: Sequence[int],
    start: int,
    data: Sequence[tuple[int, int]],
    links: Optional[CollectorLinks],
) -> Iterator[tuple[int, int, int]]:
    """Yield (what it keeps, where it begins, its slots in use) of the arrays among the variables of 3.9.

    The counts are other variables, so nobody knows how many slots are in use. But all of these have free objects: what
    is behind the first object that is not free, is not in use. Tables that are kept may have a reference, but no
    dictionary has them.
    """
    own = Ranges(data)
    for at in range(-start % _ALIGNED // 8, len(words) - SLOTS, _ALIGNED // 8):
        slots = words[at : at + SLOTS]
        if not slots[0] or not are_slots(slots, 1, 16) or any(slot in own for slot in slots):
            continue
        kind = _kind_of_variable(python, slots, (words[at - 1] if at else 0, words[at + SLOTS]))
        if kind is None:
            continue
        free = next((number for number, slot in enumerate(slots) if kind_of(python, slot) != kind), SLOTS)
        if kind == TABLES and links is not None:
            taken = set(links.tables_in_use(python.objects.image, list(slots[:free])))
            free = next((number for number, slot in enumerate(slots[:free]) if slot in taken), free)
        yield kind, at, free


def _kind_of_variable(python: Python, slots: Sequence[int], around: tuple[int, int]) -> Optional[int]:
    """Return what an array keeps; None: the words are no array of free objects. ``around``: the words beside it.

    A free object at its start proves it. So does memory of one size: a slot whose object was taken leads to a slot of
    pymalloc that had such an object. What lies there now is often another of its kind.
    """
    kind = kind_of(python, slots[0])
    if kind >= 0 and not python.objects.refcount(slots[0]):
        return kind if kind_of(python, around[0]) != kind else None
    used = [slot for slot in slots if slot]
    for kind, flag, head, size in _OLD_KINDS:
        if any(_in_pool(python, word - head, size) for word in around):
            continue
        alike = [slot for slot in used if _in_pool(python, slot - head, size)]
        if len(alike) < max(_LEAST_ALIKE, len(used) * 3 // 4):
            continue
        if any(python.objects.is_kind(slot, flag) if flag else kind_of(python, slot) == kind for slot in alike):
            return kind
    return None


def _in_pool(python: Python, at: int, size: int) -> bool:
    """Return whether a slot of pymalloc of that size begins at the address.

    ``szidx`` is in ``struct pool_header`` (Objects/obmalloc.c, 3.9): sizes are multiples of 16, slots begin behind it.
    """
    pool = at & -_POOL
    if at <= 0 or (at - pool - _POOL_HEAD) % size or at < pool + _POOL_HEAD:
        return False
    head = python.objects.words.many(pool, _POOL_HEAD // 8)
    return head is not None and head[4] >> 32 == size // 16 - 1


def _in_words(python: Python, words: Sequence[int]) -> Iterator[_Arrays]:
    """Yield the arrays that there may be among the words of a structure."""
    places = zip(range(SLOTS, len(words)), words[SLOTS:], words)
    for index in [index for index, word, slot in places if slot and not slot & 15 and not word & ~_COUNTS]:
        counts = words[index] & 0xFFFFFFFF, words[index] >> 32
        # In 3.12 the counts of dictionaries and their tables stand behind both arrays. Else each is behind its own.
        for those in (counts, counts[:1]) if python.layout.version == (3, 12) else (counts[:1],):
            first = index - SLOTS * len(those)
            arrays = [(first + SLOTS * number, count) for number, count in enumerate(those)]
            if first < 0 or (len(those) == 1 and counts[1]):
                continue
            if all(are_slots(words[at : at + SLOTS], count, _LEAST) for at, count in arrays):
                kinds = {
                    kind_of(python, slot) - number
                    for number, (at, count) in enumerate(arrays)
                    for slot in words[at : at + count]
                }
                if len(kinds) < 2 and min(kinds, default=0) >= 0:
                    yield _Arrays(arrays, index + 1, min(kinds, default=None))
                    break


def _proven(possible: Sequence[_Arrays]) -> Iterator[tuple[int, int, int]]:
    """Yield (what it keeps, where it begins, its slots in use) of the arrays that are proven, or next to such."""
    kinds = [each.kind for each in possible]
    for number, each in enumerate(possible[1:], 1):
        before, kind = possible[number - 1], kinds[number - 1]
        if kinds[number] is None and kind is not None and _touch(before, each):
            after = kind + len(before.arrays)
            kinds[number] = after if after + len(each.arrays) - 1 <= TABLES else None
    for number in range(len(possible) - 2, -1, -1):
        each, kind = possible[number], kinds[number + 1]
        if kinds[number] is None and kind is not None and _touch(each, possible[number + 1]):
            kinds[number] = kind - len(each.arrays) if kind >= len(each.arrays) else None
    for kind, each in zip(kinds, possible):
        if kind is not None:
            yield from ((kind + number, at, count) for number, (at, count) in enumerate(each.arrays))


def _touch(low: _Arrays, high: _Arrays) -> bool:
    return 0 <= high.arrays[0][0] - low.end <= _MOST_BETWEEN
