"""Figures over the blocks of an allocator with one arena, for those that keep no figures of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmods.allocators.vocabulary import ADVICE_BYTES, ADVICE_SHARE, Statistics, unused
from dmods.base.sizes import human_size
from dmods.finding import Finding
from dmods.report import Column, Schema

#: A row of the engine's ``Index.sizes``: the size, and the blocks that are in use, free, the allocator's own.
Sizes = Sequence[tuple[int, int, int, int]]

_WHEN = "for allocators that keep no figures of their own"
FIGURES = Schema(
    "allocator",
    "a figure of the allocator; each allocator has a table",
    (Column("what", about="in words: blocks or bytes"), Column("value", "count")),
    when=_WHEN,
)
TOTALS = (Column("*_allocated_bytes", "bytes", when=_WHEN, about="of that allocator"),)


def _used(sizes: Sizes) -> int:
    return sum(size * (used + own) for size, used, _free, own in sizes)


def _free(sizes: Sizes) -> int:
    return sum(row[0] * row[2] for row in sizes)


def statistics(name: str, sizes: Sizes, memory: int, more: Sequence[tuple[str, int]]) -> Statistics:
    """Return the sums over the blocks, the bytes of ``memory``, and what the heap's reader adds."""
    rows = [
        ("blocks in use", sum(used + own for _size, used, _free, own in sizes)),
        ("bytes in use", _used(sizes)),
        ("free blocks", sum(row[2] for row in sizes)),
        ("free bytes", _free(sizes)),
        ("bytes of memory", memory),
        *more,
    ]
    totals = {f"{name.rsplit(maxsplit=1)[-1]}_allocated_bytes": _used(sizes)}
    return Statistics([FIGURES.table(rows, title=name)], dict(totals))


def usage(name: str, sizes: Sizes, pages: int) -> str:
    """Return in words how much is in use, and how much is free: blocks, and so many bytes of whole pages."""
    return f"{name}: {human_size(_used(sizes))} in use, {human_size(_free(sizes) + pages)} free"


def waste(name: str, sizes: Sizes, pages: int) -> Iterator[Finding]:
    """Yield the free memory if it is much: free blocks, and so many bytes of free pages that were touched."""
    used, blocks = _used(sizes), _free(sizes)
    free = blocks + pages
    if free < ADVICE_BYTES or free < ADVICE_SHARE * (used + free):
        return
    what = f"{name} keeps {human_size(free)} free beside {human_size(used)} in use"
    if pages >= blocks:
        yield unused(
            "untrimmed",
            f"{what}: {human_size(pages)} are whole pages that no block lies in",
            "",
            free,
            ("malloc_stats",),
            alternative="the program just freed it, and soon needs it again",
        )
        return
    size, _, count, _ = max(sizes, key=lambda row: row[0] * row[2])
    yield unused(
        "untrimmed",
        f"{what}; {count:,} of the free blocks have {size:,} bytes",
        "",
        free,
        ("heapsizes",),
        helps=False,
        alternative="the program just freed it, and soon needs it again; or the system has these pages back",
    )
