"""jemalloc's size classes: arithmetic (include/jemalloc/internal/sc.h), the same in every release since 5.0."""

from __future__ import annotations

_GROUP = 2  # SC_LG_NGROUP: classes in each doubling, as a power of two
_TINY = 3  # SC_LG_TINY_MIN


def size_classes(page: int = 12, quantum: int = 4) -> tuple[list[int], int]:
    """Return (usable bytes of each class, how many of them are small).

    Pages have `1 << page` bytes, blocks are aligned to `1 << quantum`. On x86-64 there are 232 classes, 36 of them
    small; the last is 7 << 60.
    """
    sizes = [1 << lg for lg in range(_TINY, quantum)]
    sizes += [n << quantum for n in range(1, (1 << _GROUP) + 1)]
    for base in range(quantum + _GROUP, 63):
        step = 1 << (base - _GROUP)
        sizes += [(1 << base) + n * step for n in range(1, (1 << _GROUP) + 1)]
    sizes.pop()  # 1 << 63 is no size
    return sizes, sum(size < 1 << (page + _GROUP) for size in sizes)
