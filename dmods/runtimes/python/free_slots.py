"""The arrays in which CPython keeps freed lists, dictionaries and tables of dictionaries for reuse (3.10 to 3.13).

Each has 80 slots, and counts those in use (``free_list`` and ``numfree``, Include/internal/pycore_list.h and
pycore_dict.h; in 3.13 in pycore_freelist.h). A slot is not cleared when its object is taken: the pointer stays,
whatever becomes of that memory. Nor is a table cleared when it is kept: that of a dictionary that grew still has a
reference, and pointers to all keys and values.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.process.addresses import module_at
from dmods.runtimes.python import STATE
from dmods.runtimes.python.memory import DICT, LIST
from dmods.runtimes.python.runtime import Python

_SLOTS = 80
_LEAST = 1 << 32  # arenas come from mmap()
_MOST_BETWEEN = 2  # words between a count and the next array: numbers of versions, in 3.12
_COUNTS = 0x7F_0000_007F  # the bits of two ints that count slots
_LISTS, _DICTS, _TABLES = 0, 1, 2  # what an array keeps. The arrays lie in this order
# The smallest table: until 3.10 its size is 8, for 5 entries of 24 bytes. Then its size and the bytes of its indices
# are 2 to the power of 3, its kind is DICT_KEYS_UNICODE, and an entry has 16 bytes. pymalloc rounds up to 16 bytes.
_SMALL_OLD, _SMALL_OLD_BYTES = 8, 176
_SMALL, _SMALL_BYTES = 0x01_0303, 128
_TABLE_HEAD = 16  # bytes before the numbers of entries


class _Arrays(NamedTuple):
    """Arrays among words: (where each begins, its slots in use), where the counts end, and what the first one keeps."""

    arrays: list[tuple[int, int]]
    end: int
    kind: Optional[int]


def old_slots(python: Python) -> list[tuple[int, int]]:
    """Return the slots that are not in use, and what kept tables had, as ranges.

    A free object proves an array. One without must be next to one that is proven.
    """
    if not (3, 10) <= python.layout.version < (3, 14):
        return []  # 3.9 has them among other variables, in any order; since 3.14 the free lists are linked
    module = module_at(python.target, python.runtime)
    data = [(part.start, part.end) for part in module.ranges if "w" in part.flags] if module is not None else []
    size = _SMALL_BYTES if python.layout.version >= (3, 11) else _SMALL_OLD_BYTES
    found: list[tuple[int, int]] = []
    for start, end in Ranges([*data, *((at, at + STATE) for at in python.interpreters)]):
        for first, last in python.objects.image.covered(start, end):
            held = python.objects.image.read(first, (last - first) // 8 * 8)
            words = array("Q", held[: len(held) // 8 * 8])
            for kind, at, count in _proven(list(_in_words(python, words))):
                found.append((first + 8 * (at + count), first + 8 * (at + _SLOTS)))
                if kind == _TABLES:
                    found += ((table + _TABLE_HEAD, table + size) for table in words[at : at + count])
    return found


def _in_words(python: Python, words: Sequence[int]) -> Iterator[_Arrays]:
    """Yield the arrays that there may be among the words of a structure."""
    places = zip(range(_SLOTS, len(words)), words[_SLOTS:], words)
    for index in [index for index, word, slot in places if slot and not slot & 15 and not word & ~_COUNTS]:
        counts = words[index] & 0xFFFFFFFF, words[index] >> 32
        # In 3.12 the counts of dictionaries and their tables stand behind both arrays. Else each is behind its own.
        for those in (counts, counts[:1]) if python.layout.version == (3, 12) else (counts[:1],):
            first = index - _SLOTS * len(those)
            arrays = [(first + _SLOTS * number, count) for number, count in enumerate(those)]
            if first < 0 or (len(those) == 1 and counts[1]):
                continue
            if all(_are_slots(words[at : at + _SLOTS], count) for at, count in arrays):
                kinds = {
                    _kind(python, slot) - number
                    for number, (at, count) in enumerate(arrays)
                    for slot in words[at : at + count]
                }
                if len(kinds) < 2 and min(kinds, default=0) >= 0:
                    yield _Arrays(arrays, index + 1, min(kinds, default=None))
                    break


def _are_slots(slots: Sequence[int], count: int) -> bool:
    """Return whether the words are slots, the first ``count`` of them in use: those that never were are 0."""
    used = next((number for number, word in enumerate(slots) if not word), _SLOTS)
    return count <= used and not any(slots[used:]) and all(word % 16 == 0 and word >= _LEAST for word in slots[:used])


def _kind(python: Python, at: int) -> int:
    """Return what lies at the address without a reference: a list, a dictionary, or the smallest table; else -1."""
    references, head = python.objects.words.many(at, 2) or (-1, 0)
    small = head & 0xFFFFFF == _SMALL if python.layout.version >= (3, 11) else head == _SMALL_OLD
    if small and references in (0, 1):
        return _TABLES
    kind = python.objects.type_at(head) if not references else None
    if kind is None or not kind.flags & (LIST | DICT):
        return -1
    return _LISTS if kind.flags & LIST else _DICTS


def _proven(possible: Sequence[_Arrays]) -> Iterator[tuple[int, int, int]]:
    """Yield (what it keeps, where it begins, its slots in use) of the arrays that are proven, or next to such."""
    kinds = [each.kind for each in possible]
    for number, each in enumerate(possible[1:], 1):
        before, kind = possible[number - 1], kinds[number - 1]
        if kinds[number] is None and kind is not None and _touch(before, each):
            after = kind + len(before.arrays)
            kinds[number] = after if after + len(each.arrays) - 1 <= _TABLES else None
    for number in range(len(possible) - 2, -1, -1):
        each, kind = possible[number], kinds[number + 1]
        if kinds[number] is None and kind is not None and _touch(each, possible[number + 1]):
            kinds[number] = kind - len(each.arrays) if kind >= len(each.arrays) else None
    for kind, each in zip(kinds, possible):
        if kind is not None:
            yield from ((kind + number, at, count) for number, (at, count) in enumerate(each.arrays))


def _touch(low: _Arrays, high: _Arrays) -> bool:
    return 0 <= high.arrays[0][0] - low.end <= _MOST_BETWEEN
