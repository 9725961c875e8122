"""The size classes of allocators that dmods does not walk: how much they give where less was asked for."""

from __future__ import annotations

_PAGE = 8192  # of tcmalloc (kPageShift 13, the default)
_MOST_TCMALLOC = 256 << 10  # kMaxSize
_MOST_MEDIUM = 128 << 10  # MI_MEDIUM_OBJ_SIZE_MAX
_MOST_LARGE = 16 << 20  # MI_LARGE_OBJ_SIZE_MAX
_SLICE = 64 << 10  # MI_SEGMENT_SLICE_SIZE


def size_classes(name: str) -> list[int]:
    """Return the size classes of that allocator, sorted; [] where they are not known."""
    made = {"tcmalloc": _tcmalloc, "mimalloc": _mimalloc}.get(name)
    return made() if made is not None else []


def _tcmalloc() -> list[int]:
    """Return the classes that gperftools 2.10 makes at its start (src/common.cc, SizeMap::Init).

    Sizes follow each other in steps of at most an eighth. Two classes with as many pages and objects become one.
    """
    classes: list[tuple[int, int]] = []  # (size, pages)
    size = 16
    while size <= _MOST_TCMALLOC:
        pages = _pages(size)
        if classes and classes[-1][1] == pages and pages * _PAGE // classes[-1][0] == pages * _PAGE // size:
            classes[-1] = (size, pages)
        else:
            classes.append((size, pages))
        size += min(_PAGE, (1 << size.bit_length() - 1) // 8) if size >= 128 else 16
    return [size for size, _pages in classes]


def _pages(size: int) -> int:
    """Return the pages of a span: at most an eighth is wasted, and a quarter of a batch fits in."""
    batch = max(2, min(32, (64 << 10) // size)) // 4
    length = 0
    while True:
        length += _PAGE
        while length % size > length >> 3:
            length += _PAGE
        if length // size >= batch:
            return length // _PAGE


def _mimalloc() -> list[int]:
    """Return the classes of mimalloc 2.0: multiples of 16 up to 64, then four bins for each power of two.

    See mi_bin in src/page-queue.c. Above the medium sizes a block has slices of its own.
    """
    classes, power = [16, 32, 48, 64], 64
    while power < _MOST_LARGE:
        bins = [power + power // 4 * step for step in (1, 2, 3, 4)]
        classes.extend(bins if power < _MOST_MEDIUM else (-(-size // _SLICE) * _SLICE for size in bins))
        power *= 2
    return list(dict.fromkeys(classes))
