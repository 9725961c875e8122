"""The records that NumPy keeps for later, with what it wrote into them before.

np.array(object) makes a record for each array and sequence in the object (numpy/core/src/multiarray/array_coercion.h,
``struct coercion_cache``; since 1.19). At most five that are not needed any more are kept, and NumPy does not clear
them: an array that was lost later would have an owner.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from dmods.base.words import Words
from dmods.target import Module, Target

_LIBRARY = "_multiarray_umath."
_RECORDS, _COUNT = "_coercion_cache_cache", "_coercion_cache_num"  # static: a stripped NumPy does not name them
_MOST = 5  # COERCION_CACHE_CACHE_SIZE
_POINTERS = 3  # words of a record: the object, the array or sequence made of it, the next record


def old_records(target: Target) -> Iterator[tuple[int, int]]:
    """Yield the pointers in the records, and the elements of NumPy's own array of them that have none."""
    words = Words(target.image(), target.arch.word)
    for module in target.modules():
        if os.path.basename(module.path).startswith(_LIBRARY):
            yield from _unused(target, words, module)


def _unused(target: Target, words: Words, module: Module) -> Iterator[tuple[int, int]]:
    records, count = (target.lookup(f"{module.name}`{name}") for name in (_RECORDS, _COUNT))
    if records is None or count is None:
        return
    used, size = words.int32(count.address), words.size
    kept = words.many(records.address, _MOST)
    if used is None or kept is None or not 0 <= used <= _MOST:
        return
    yield from ((at, at + _POINTERS * size) for at in kept[:used] if at)
    yield records.address + used * size, records.address + _MOST * size
