"""The free lists that stand side by side in the state of an interpreter (3.10 to 3.13).

They are members of PyInterpreterState (Include/internal/pycore_interp.h), in 3.13 of ``_Py_object_freelists``
(pycore_freelist.h). Tuples come first: 20 lists, each with a count. Then come arrays of 80 slots, each with a count.
An empty array shows nothing by itself, so all members are checked together. What follows them is known, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.runtimes.python.memory import DICT, EXCEPTION, LIST, TUPLE
from dmods.runtimes.python.runtime import Python

SLOTS = 80  # PyList_MAXFREELIST, PyDict_MAXFREELIST, _PyAsyncGen_MAXFREELIST
LISTS, DICTS, TABLES, VALUES, SENDS = range(5)  # what an array keeps
_NAMES = {"async_generator_wrapped_value": VALUES, "async_generator_asend": SENDS}
_TUPLES = 20  # PyTuple_MAXSAVESIZE
_MOST_TUPLES = 2000  # PyTuple_MAXFREELIST
_HEAD = 24  # bytes of a tuple before its items; the first item of a free one is the link
_COUNT = 0x7F  # the bits of a count
# The smallest table: until 3.10 its size is 8. Then its size and the bytes of its indices are 2 to the power of 3, and
# its kind is DICT_KEYS_UNICODE.
_SMALL_OLD, _SMALL = 8, 0x01_0303
_MOST_NAME = 64


class _Form(NamedTuple):
    """Where the members of a release lie, in words from the lists of tuples.

    ``arrays``: (where the slots begin, the word that counts those in use, the lowest bit of the count, what they keep).
    ``chains``: a pointer to the first object of a list, and its count. ``behind``: the first word behind all of them.
    """

    arrays: tuple[tuple[int, int, int, int], ...]
    chains: tuple[tuple[int, int], ...]
    behind: int


_FORMS = {
    # Lists, dictionaries, tables, frames, asynchronous generators, contexts.
    10: _Form(
        (
            (30, 110, 0, LISTS),
            (111, 191, 0, DICTS),
            (192, 272, 0, TABLES),
            (275, 355, 0, VALUES),
            (356, 436, 0, SENDS),
        ),
        ((273, 274), (437, 438)),
        439,
    ),
    11: _Form(
        (
            (30, 110, 0, LISTS),
            (111, 191, 0, DICTS),
            (192, 272, 0, TABLES),
            (273, 353, 0, VALUES),
            (354, 434, 0, SENDS),
        ),
        ((435, 436),),
        437,
    ),
    # Two numbers of versions stand before the dictionaries, and eight watchers behind the tables.
    12: _Form(
        (
            (30, 110, 0, LISTS),
            (113, 273, 0, DICTS),
            (193, 273, 32, TABLES),
            (282, 362, 0, VALUES),
            (363, 443, 0, SENDS),
        ),
        ((444, 445),),
        446,
    ),
    # One slice stands before the contexts. The lists of chunks of stacks, and a number, are behind.
    13: _Form(
        (
            (30, 110, 0, LISTS),
            (111, 191, 0, DICTS),
            (192, 272, 0, TABLES),
            (276, 356, 0, VALUES),
            (357, 437, 0, SENDS),
        ),
        ((274, 275),),
        441,
    ),
}
_MEMBERS = 4  # words behind that are looked at


def arrays_in(python: Python, words: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (what it keeps, where it begins, its slots in use) of each array among the words of a structure.

    All members must be what they are said to be, and something must prove that they are: a free object, or what
    stands behind them.
    """
    form = _FORMS.get(python.layout.version[1])
    if form is None:
        return
    found_to = 0
    for at in _possible(form, words):
        if at < found_to:
            continue
        arrays = [(kind, at + start, words[at + count] >> bit & _COUNT) for start, count, bit, kind in form.arrays]
        tuples = _tuples(python, words[at : at + 30])
        chains = all(bool(words[at + first]) == bool(words[at + count]) for first, count in form.chains)
        if tuples is None or not chains or not all(_is_array(python, words, *each) for each in arrays):
            continue
        end = at + form.behind
        if tuples or any(count for _kind, _at, count in arrays) or _is_behind(python, words[end : end + _MEMBERS]):
            found_to = end
            yield from arrays


def _possible(form: _Form, words: Sequence[int]) -> Iterator[int]:
    """Yield where the lists of tuples may begin: all counts are in range. Python frees lists while it starts."""
    bits: dict[int, int] = {}
    for _start, count, bit, _kind in form.arrays:
        bits[count] = bits.get(count, 0) | _COUNT << bit
    length = max(len(words) - form.behind - _MEMBERS, 0)
    start, count, _bit, _kind = form.arrays[0]
    first = zip(range(length), words[start:], words[count:])
    for at in [at for at, slot, number in first if slot and not slot & 15 and number <= _COUNT]:
        if not any(words[at + place] & ~those for place, those in bits.items()):
            yield at


def _is_array(python: Python, words: Sequence[int], kind: int, at: int, count: int) -> bool:
    slots = words[at : at + SLOTS]
    return are_slots(slots, count, 16) and all(kind_of(python, slot) == kind for slot in slots[:count])


def are_slots(slots: Sequence[int], count: int, least: int) -> bool:
    """Return whether the words are slots, the first ``count`` of them in use: those that never were are 0."""
    used = next((number for number, word in enumerate(slots) if not word), SLOTS)
    return count <= used and not any(slots[used:]) and all(word % 16 == 0 and word >= least for word in slots[:used])


def kind_of(python: Python, at: int) -> int:
    """Return what lies at the address without a reference, as an array keeps it; -1: something else."""
    references, head = python.objects.words.many(at, 2) or (-1, 0)
    small = head & 0xFFFFFF == _SMALL if python.layout.version >= (3, 11) else head == _SMALL_OLD
    if small and references in (0, 1):
        return TABLES
    kind = python.objects.type_at(head) if not references else None
    if kind is None:
        return -1
    if kind.flags & (LIST | DICT):
        return LISTS if kind.flags & LIST else DICTS
    return _NAMES.get(kind.name, -1)


def _tuples(python: Python, words: Sequence[int]) -> Optional[int]:
    """Return how many free tuples there are. None: the words are no lists of tuples.

    Each list has tuples of one length. Until 3.10 the first one has the empty tuple, which is in use.
    """
    total, first = 0, 0 if python.layout.version < (3, 11) else 1
    for number, head in enumerate(words[:_TUPLES]):
        count = words[_TUPLES + number // 2] >> 32 * (number % 2) & 0xFFFFFFFF
        if count > _MOST_TUPLES or bool(head) != bool(count):
            return None
        if number + first == 0:
            if count > 1 or (count and not python.objects.refcount(head)):
                return None
            if count and (not python.objects.is_kind(head, TUPLE) or python.objects.words.at(head + 16)):
                return None
            continue
        at = head
        for _step in range(count):
            references, kind, length, following = python.objects.words.many(at, 4) or (-1, 0, 0, 0)
            if references or length != number + first or not _is_tuple(python, kind):
                return None
            at = following
        if at:
            return None
        total += count
    return total


def _is_tuple(python: Python, kind: int) -> bool:
    known = python.objects.type_at(kind)
    return known is not None and known.name == "tuple"


def _is_behind(python: Python, words: Sequence[int]) -> bool:
    """Return whether the words begin as what stands behind the lists.

    That is ``_Py_exc_state`` (pycore_exceptions.h), where 3.11 has ExceptionGroup. In 3.13 it is the name of the codec
    of file names, whether that is UTF-8, and how errors are handled (``_Py_unicode_fs_codec``, pycore_unicodeobject.h).
    """
    if len(words) < _MEMBERS:
        return False
    objects, version = python.objects, python.layout.version
    if version >= (3, 13):
        name, errors = (objects.image.read(at, _MOST_NAME).partition(b"\0") for at in (words[0], words[2]))
        return (
            bool(errors[1])
            and errors[0].startswith((b"surrogate", b"strict"))
            and words[1] & 0xFFFFFFFF == (name[0] == b"utf-8")
        )
    names = objects.type_of(words[0])
    if names is None or names.name != "dict" or bool(words[1]) != bool(words[2]):
        return False
    if version < (3, 11):
        return True
    group = objects.type_at(words[3])
    return group is not None and group.name == "ExceptionGroup" and bool(group.flags & EXCEPTION)
