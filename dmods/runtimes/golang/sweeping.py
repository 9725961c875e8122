"""Objects that the collector has found dead, and the sweeper has not freed: those without a mark in unswept spans.

When marking ends, mheap_.sweepgen goes up by two, and each span waits for the sweeper (runtime/mgcsweep.go). Until it
is swept, its allocBits tell what is in use and its marks what lives on. No object is made in such a span. The marks
are gcmarkBits. Green Tea (GOEXPERIMENT=greenteagc in 1.25, the usual collector since 1.26) has those of small objects
in the span itself (struct spanInlineMarkBits, runtime/mgcmark_greenteagc.go).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Optional

from dmods.base.words import Words
from dmods.runtimes.golang.mheap import PAGE, GoHeap, Span

_INLINE = 128  # bytes of struct spanInlineMarkBits, the last of the span's page
_MARKS, _CLASS = 64, 127  # offsets in it; 63 bytes of marks
_SMALLEST, _LARGEST = 16, 512  # bytes of objects in spans that have it (gcUsesSpanInlineMarkBits)
_AGREE = 0.95  # of the spans that may have it


def unmarked(words: Words, heap: GoHeap) -> Iterator[tuple[Span, int]]:
    """Yield the spans that wait for the sweeper, and bits of their objects in use that the collector did not mark."""
    waiting = [span for span in heap.spans if heap.needs_sweeping(span) and span.free is not None]
    inline = _has_inline_marks(words, waiting)
    for span in waiting:
        marks = _inline_marks(words, span) if inline else None
        if marks is None:
            marks = _marks(words, heap, span)
        if marks is not None and span.free is not None:
            yield span, ~(marks | span.free) & ((1 << span.objects) - 1)


def objects_of(span: Span, bits: int) -> Iterator[tuple[int, int]]:
    """Yield (address, bytes) of the objects of a span that have a bit, by address."""
    while bits:
        index = (bits & -bits).bit_length() - 1
        yield span.start + index * span.size, span.size
        bits &= bits - 1


def _has_inline_marks(words: Words, spans: list[Span]) -> bool:
    """Return whether nearly all spans that may have marks inside do: those of small objects that leave room."""
    may = [span for span in spans if _may_have_inline_marks(span)]
    have = sum(_inline_marks(words, span) is not None for span in may)
    return bool(may) and have >= _AGREE * len(may)


def _may_have_inline_marks(span: Span) -> bool:
    return (
        span.end - span.start == PAGE
        and span.size_class > 0
        and _SMALLEST <= span.size <= _LARGEST
        and span.objects * span.size <= PAGE - _INLINE
    )


def _inline_marks(words: Words, span: Span) -> Optional[int]:
    """Return the marks inside the span. None: it has none, for it does not repeat its class there."""
    if not _may_have_inline_marks(span):
        return None
    data = words.image.read(span.end - _INLINE, _INLINE)
    if len(data) != _INLINE or data[_CLASS] != span.size_class << 1 | (not span.pointers):
        return None
    return int.from_bytes(data[_MARKS:_CLASS], "little")


def _marks(words: Words, heap: GoHeap, span: Span) -> Optional[int]:
    """Return gcmarkBits, which follow allocBits."""
    place = words.image.read(span.record + heap.layout.bits + 8, 8)
    size = (span.objects + 7) // 8
    data = words.image.read(struct.unpack("<Q", place)[0], size) if len(place) == 8 else b""
    return int.from_bytes(data, "little") if len(data) == size else None
