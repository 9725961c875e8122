"""Count the blocks of each size."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Optional

from dmods.allocators.numbers import NO_ARENA, arena_name
from dmods.base.dataclass import dataclass, replace
from dmods.command import Argument, Command, positive
from dmods.errors import UsageError
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.no_heap import no_heap
from dmods.heap.verdict import heap_verdict, judge, leak_verdict
from dmods.report import Column, Report, Schema, Value
from dmods.target import Target

_FEW = 40  # sizes; if there are no more, each has a line
_FINE = 1024  # up to this size a class is a chunk size; above, each power of two has four classes
_SPLIT = 4

_LEAKS = ("leaked_count", "leaked_bytes")
SIZES = Schema(
    "sizes",
    "a size of blocks, or a class of sizes",
    (
        Column("size", about="a number, or two with a dash between"),
        Column("live_count", "count", title="LIVE", about="leaked blocks are among them"),
        Column("live_bytes", "bytes", title="LIVE BYTES"),
        Column("percent", "percent", title="%LIVE"),
        Column("free_count", "count", title="FREE"),
        Column("free_bytes", "bytes", title="FREE BYTES"),
        Column("leaked_count", "count", title="LEAKED", about="meaningless where the totals have null"),
        Column("leaked_bytes", "bytes", title="LEAKED BYTES", about="meaningless where the totals have null"),
        Column("least", "bytes", hidden=True),
        Column("most", "bytes", hidden=True),
    ),
    when="where there is a heap",
)


@dataclass
class Class:
    """The blocks of usable sizes ``least`` to ``most``. ``live`` includes ``leaked``."""

    least: int
    most: int
    live: int = 0
    live_bytes: int = 0
    free: int = 0
    free_bytes: int = 0
    leaked: int = 0
    leaked_bytes: int = 0

    @property
    def text(self) -> str:
        """Return the size, or the range of sizes, as text."""
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"

    def add(self, size: int, live: int, free: int, leaked: int) -> None:
        """Add so many blocks of the size. `live` does not include `leaked`."""
        self.live += live + leaked
        self.live_bytes += (live + leaked) * size
        self.free += free
        self.free_bytes += free * size
        self.leaked += leaked
        self.leaked_bytes += leaked * size


ORDERS: dict[str, Callable[[Class], object]] = {
    "bytes": lambda c: (-c.live_bytes, -c.free_bytes, c.least),
    "count": lambda c: (-c.live, -c.free, c.least),
    "free": lambda c: (-c.free_bytes, c.least),
    "size": lambda c: c.least,
}


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the classes of block sizes, with their counts and bytes."""
    heap = find_heap(target)
    report = Report(notes=list(heap.notes))
    judge(report, heap_verdict(heap))
    if not heap.found:
        report.notes.insert(0, no_heap(target))
        return report
    leaks = leak_verdict(heap).possible
    number = None if args.arena is None else _arena(heap, args.arena)
    # The blocks that an allocator took for itself are not the program's.
    sizes = [row[:4] for row in heap.marks.engine.sizes(number) if any(row[1:4])]
    classes = classify(sizes, heap.words.size, args.exact)
    total = Class(0, 0)
    for size, live, free, leaked in sizes:
        total.add(size, live, free, leaked)
    shown = sorted(classes, key=ORDERS[args.sort])  # type: ignore[arg-type]
    if args.top is not None and len(shown) > args.top:
        report.notes.append(f"{len(shown) - args.top} more sizes are not shown (--top)")
        shown = shown[: args.top]
    report.tables.append(
        SIZES.table([_row(c, total) for c in shown], _columns(leaks), footer=_footer(total, len(sizes), leaks))
    )
    report.totals = {
        "live_count": total.live,
        "live_bytes": total.live_bytes,
        "free_count": total.free,
        "free_bytes": total.free_bytes,
        "leaked_count": total.leaked if leaks else None,
        "leaked_bytes": total.leaked_bytes if leaks else None,
        "sizes": len(sizes),
    }
    return report


def _arena(heap: ProcessHeap, text: str) -> int:
    """Return the number of the arena that ``malloc_stats`` gives this name. "mmapped" means the mmapped blocks."""
    names = {"0": 0, arena_name(None): NO_ARENA}
    names.update(pair for one in heap.heaps for pair in one.arena_numbers().items())
    if text not in names:
        raise UsageError(
            f"no arena {text!r}", "`malloc_stats` lists the arenas; `mmapped` are the blocks with mappings of their own"
        )
    return names[text]


def classify(sizes: Iterable[tuple[int, int, int, int]], word: int, exact: bool) -> list[Class]:
    """Return the classes of ``sizes``: (usable size, live, free, leaked). Few sizes, or ``exact``: one class each."""
    sizes = list(sizes)
    exact = exact or len(sizes) <= _FEW
    classes: dict[int, Class] = {}
    for size, live, free, leaked in sizes:
        least, most = (size, size) if exact else class_of(size, word)
        classes.setdefault(least, Class(least, most)).add(size, live, free, leaked)
    return list(classes.values())


def class_of(size: int, word: int) -> tuple[int, int]:
    """Return the least and the largest usable size of the class that ``size`` is in.

    Chunks (``size`` and a word) up to 1 KiB have a class for each size, as glibc's small bins do. Above that, each
    power of two has four classes.
    """
    chunk = size + word
    if chunk <= _FINE:
        return size, size
    step = (1 << (chunk - 1).bit_length() - 1) // _SPLIT
    most = -(-chunk // step) * step
    return most - step + 1 - word, most - word


def _columns(leaks: bool) -> list[Column]:
    """Return the columns. Those of leaks are shown where a verdict on leaks is possible."""
    return [replace(column, hidden=True) if column.name in _LEAKS and not leaks else column for column in SIZES.columns]


def _row(c: Class, total: Class) -> tuple[Value, ...]:
    share: Optional[float] = 100 * c.live_bytes / total.live_bytes if total.live_bytes else 0.0
    return c.text, c.live, c.live_bytes, share, c.free, c.free_bytes, c.leaked, c.leaked_bytes, c.least, c.most


def _footer(total: Class, sizes: int, leaks: bool) -> list[str]:
    live, free = f"{total.live} live blocks, {total.live_bytes} bytes", f"{total.free} free, {total.free_bytes} bytes"
    text = f"Total: {live}; {free}; {sizes} sizes"
    leaked = f"leaked: {total.leaked} blocks, {total.leaked_bytes} bytes (among the live ones)"
    return ["-" * 72, text, *([leaked] if leaks else [])]


TOTALS = (
    Column("live_count", "count", about="leaked blocks are among them"),
    Column("live_bytes", "bytes"),
    Column("free_count", "count"),
    Column("free_bytes", "bytes"),
    Column("leaked_count", "count", null="no verdict on leaks is possible"),
    Column("leaked_bytes", "bytes", null="no verdict on leaks is possible"),
    Column("sizes", "count", about="how many different sizes"),
)


COMMAND = Command(
    name="heapsizes",
    summary="what fills the heap: how many blocks there are of each size",
    description=(
        "Sizes are usable bytes (malloc_usable_size). If there are few sizes, each has a line. Otherwise sizes are\n"
        "grouped: one class for each chunk size up to 1 KiB, then four for each power of two. Blocks in bins,\n"
        "fastbins and tcaches are free. LIVE counts leaked blocks, too."
    ),
    run=run,
    tables=(SIZES,),
    totals=TOTALS,
    verdict=True,
    arguments=(
        Argument("--exact", action="store_true", help="every size by itself"),
        Argument("--arena", metavar="N", help="only this arena: main, a number, je0, or mmapped"),
        Argument("--sort", choices=sorted(ORDERS), default="bytes", help="sort by this column (default: live bytes)"),
        Argument("--top", type=positive, metavar="N", help="only the first N"),
    ),
    examples=(
        ("heapsizes --top 10", "the ten sizes that hold most memory"),
        ("heapsizes --arena main --exact --sort size", "every size in the main arena, smallest first"),
    ),
)
