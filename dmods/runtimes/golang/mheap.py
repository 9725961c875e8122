"""Go's heap: the spans of runtime.mheap_, found by its list of all spans and proven by what they say of themselves.

mheap_.allspans is a slice of every struct mspan ever made (runtime/mheap.go). The order of the fields is that of Go
1.19 to 1.27. Where each field lies is proven on the spans of the process: the end of the objects agrees with their
number and size, and the number of objects in use with the bits. So neither symbols nor the release are needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.cached import cached
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words
from dmods.modules.golang.moduledata import GoModule, go_modules
from dmods.process.mappings import mapping_at
from dmods.target import Target

PAGE = 8192
ARENA = 64 << 20  # heapArenaBytes of 64-bit Linux
MOST_SPANS = 1 << 22
_MOST_PROBLEMS = 1000  # that are listed
_SPAN = 192  # bytes of struct mspan that are read: it has 144 to 176
_START, _PAGES = 24, 32
_ELEMSIZE = range(96, 129, 8)  # where elemsize may be; limit follows
_INDEX = 48  # freeindex; nelems follows it: both of 8 bytes, or of 2 since 1.22
_BITS = range(64, 97, 8)  # where allocBits may be; gcmarkBits follows
_DEAD, _IN_USE, _MANUAL = range(3)
_MOST_ELEMENTS = 8192  # of a span: 1024 in every release, so far
_MOST_CLASSES = 128
_MOST_PAGES = 1 << 28
_FEWEST = 4  # spans in use that prove a layout
_SAMPLE = 512
_AGREE = 0.95  # of the spans. A few may be damaged, or in change.
_CHUNK = 1 << 20
_MOST_SLICES = 4096  # that are looked at closely


class Layout(NamedTuple):
    """Offsets in struct mspan. ``wide``: bytes of freeindex and of nelems."""

    wide: int
    bits: int
    elemsize: int


class Span(NamedTuple):
    """A span of objects of one size. ``free``: bit i says that object i is free; None: the bits are not in the dump."""

    start: int
    end: int
    size: int
    objects: int
    free: Optional[int]
    size_class: int
    pointers: bool  # objects may hold pointers; "noscan" otherwise
    limit: int  # the end of the objects; of a large object, that of what the program asked for
    sweepgen: int
    record: int
    large_type: int  # of a large object with pointers, since 1.22; 0: its record has none


@dataclass
class GoHeap:
    """The heap of a Go runtime. ``spans`` are by address. ``manual`` are stacks and the collector's own memory.

    ``problems`` are (address of a struct mspan, what is wrong with it). ``unswept`` is None where it is not known.
    """

    layout: Layout
    allspans: int
    spans: list[Span] = field(default_factory=list)
    manual: list[tuple[int, int, int]] = field(default_factory=list)  # start, end, bytes of a stack in it
    records: list[int] = field(default_factory=list)
    stride: int = _SPAN
    sweepgen: Optional[int] = None
    problems: list[tuple[int, str]] = field(default_factory=list)
    problem_count: int = 0
    missing: int = 0  # struct mspan that are not in the dump

    def note(self, record: int, problem: str) -> None:
        """Note what is wrong with a struct mspan."""
        self.problem_count += 1
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append((record, problem))

    def needs_sweeping(self, span: Span) -> bool:
        """Return whether the collector has marked, and has not swept the span (mspan.sweepgen)."""
        return self.sweepgen is not None and (span.sweepgen - self.sweepgen) & 0xFFFFFFFF in (0xFFFFFFFE, 1)


class FoundMheap(NamedTuple):
    """The heap, or the check that failed. Both None: there is no Go."""

    heap: Optional[GoHeap]
    refusal: Optional[str]


@cached
def find_mheap(target: Target) -> FoundMheap:
    """Return the heap of the Go runtime in the process. Of several runtimes the one with most spans."""
    modules = go_modules(target)
    if not modules:
        return FoundMheap(None, None)
    words = Words(target.image(), target.arch.word)
    refusal = "runtime.mheap_ is not found: no list in the program's variables holds spans"
    best: Optional[GoHeap] = None
    for place, elements in _lists(target, words, modules):
        if best is not None and len(elements) <= len(best.records):
            continue
        if len(elements) > MOST_SPANS:
            refusal = f"the list of spans at {place:#x} is not read: it has more than {MOST_SPANS} spans"
            continue
        layout, wrong = _prove(words, elements)
        if layout is None:
            refusal = f"the list of spans at {place:#x} is not read: {wrong}"
            continue
        best = _read(words, layout, place, elements)
    return FoundMheap(best, None if best is not None else f"Go's heap: {refusal}")


# -- the list of spans ------------------------------------------------------------------------------------------------


def _lists(target: Target, words: Words, modules: Sequence[GoModule]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield (address, elements) of the slices in the program's variables whose elements look like spans."""
    symbol = target.lookup("runtime.mheap_")
    if symbol is not None:
        found = list(_within(target, words, symbol.address, symbol.address + (symbol.size or 1 << 20)))
        if found:
            yield from found
            return
    for module in modules:
        for start, end in module.data:
            yield from _within(target, words, start, end)


def _within(target: Target, words: Words, start: int, end: int) -> Iterator[tuple[int, Sequence[int]]]:
    tried = 0
    for at in range(start, end, _CHUNK):
        data = words.image.read(at, min(_CHUNK + 16, end - at))
        numbers = memoryview(data[: len(data) // 8 * 8]).cast("Q")
        for place in range(len(numbers) - 2):
            length = numbers[place + 1]
            if not _FEWEST <= length <= numbers[place + 2] <= 2 * MOST_SPANS or numbers[place] % 8:
                continue
            if numbers[place] < PAGE or tried >= _MOST_SLICES:
                continue
            tried += 1
            elements = _elements(target, words, numbers[place], length)
            if elements is not None:
                yield at + 8 * place, elements


def _elements(target: Target, words: Words, address: int, length: int) -> Optional[Sequence[int]]:
    """Return the elements of a list of spans, or None where one of the first is no span."""
    mapping = mapping_at(target, address)
    if mapping is None or "w" not in mapping.flags:
        return None
    few = words.many(address, min(length, 16))
    if few is None or len(set(few)) != len(few) or not all(_may_be_span(words, one) for one in few):
        return None
    return words.many(address, min(length, MOST_SPANS + 1))


def _may_be_span(words: Words, address: int) -> bool:
    fields = words.many(address, 5) if address >= PAGE and address % 8 == 0 else None
    if fields is None:
        return False
    start, pages = fields[_START // 8], fields[_PAGES // 8]
    return start % PAGE == 0 and pages < _MOST_PAGES and (start != 0) >= (pages != 0)


# -- the layout -------------------------------------------------------------------------------------------------------


def _prove(words: Words, elements: Sequence[int]) -> tuple[Optional[Layout], str]:
    """Return the offsets on which the spans agree, or None and the check that failed."""
    every = max(1, len(elements) // _SAMPLE)
    rows = [data for data in (words.image.read(at, _SPAN) for at in elements[::every]) if len(data) == _SPAN]
    failed = "no offset has an object size and an end that agree with the number of objects"
    for elemsize in _ELEMSIZE:
        for wide in (2, 8):
            layout = Layout(wide, 0, elemsize)
            used = [row for row in rows if row[elemsize - 5] == _IN_USE]
            fit = [row for row in used if _wrong(row, layout) is None]
            if len(fit) < max(_FEWEST, _AGREE * len(used)):
                continue
            if not _classes_agree(fit, elemsize):
                failed = "spans of one size class have objects of different sizes"
                continue
            for bits in _BITS:
                if bits >= elemsize - 24:
                    break
                if _bits_agree(words, fit, layout._replace(bits=bits)):
                    return layout._replace(bits=bits), ""
            failed = "no bits agree with the number of objects in use"
    return None, failed


def _numbers(row: bytes, layout: Layout) -> tuple[int, int]:
    """Return (freeindex, nelems)."""
    free, count = struct.unpack_from("<2H" if layout.wide == 2 else "<2Q", row, _INDEX)
    return free, count


def _wrong(row: bytes, layout: Layout) -> Optional[str]:
    """Return what in a span that is in use contradicts itself, or None."""
    start, pages = struct.unpack_from("<2Q", row, _START)
    size, limit = struct.unpack_from("<2Q", row, layout.elemsize)
    used, size_class = struct.unpack_from("<HB", row, layout.elemsize - 8)
    freeindex, count = _numbers(row, layout)
    if not start or start % PAGE or not 0 < pages < _MOST_PAGES:
        return "its pages are not valid"
    if not 0 < count <= _MOST_ELEMENTS or not 0 < size <= pages * PAGE or size % 8 or count * size > pages * PAGE:
        return "its objects do not fit in its pages"
    if freeindex > count or used > count:
        return "it claims more objects than there are"
    if size_class >> 1 == 0:
        return None if count == 1 and start < limit <= start + pages * PAGE else "its end is not that of its object"
    # In 1.22 and 1.23 the end is that of all its memory, with the bits of pointers behind the objects.
    ends = (start + count * size, start + pages * PAGE // size * size)
    return None if limit in ends else "its end is not that of its objects"


def _classes_agree(rows: Sequence[bytes], elemsize: int) -> bool:
    """Return whether each size class has one size, and a higher class a larger one."""
    sizes: dict[int, int] = {}
    for row in rows:
        size_class, size = row[elemsize - 6] >> 1, struct.unpack_from("<Q", row, elemsize)[0]
        if size_class and sizes.setdefault(size_class, size) != size:
            return False
    ordered = [size for _class, size in sorted(sizes.items())]
    return all(a < b for a, b in zip(ordered, ordered[1:])) and max(sizes, default=0) < _MOST_CLASSES


def _bits_agree(words: Words, rows: Sequence[bytes], layout: Layout) -> bool:
    """Return whether allocBits and gcmarkBits may be there, and tell the number of objects in use.

    They tell nothing of a span whose objects before freeindex are all there is.
    """
    agree = seen = readable = 0
    for row in rows:
        used, (freeindex, count) = struct.unpack_from("<H", row, layout.elemsize - 8)[0], _numbers(row, layout)
        readable += all(_bitmap(words, row, at, count) is not None for at in (layout.bits, layout.bits + 8))
        if freeindex == count:
            continue
        seen += 1
        free = _free(words, row, layout)
        # A thread that is inside malloc has taken an object, and not yet counted it.
        agree += free is not None and abs(count - bin(free).count("1") - used) <= 1
    return agree >= _AGREE * seen and readable >= _AGREE * len(rows)


def _bitmap(words: Words, row: bytes, at: int, count: int) -> Optional[int]:
    """Return the bits that the word at an offset of the record points to. None: they are not in the dump."""
    data = words.image.read(struct.unpack_from("<Q", row, at)[0], (count + 7) // 8)
    return int.from_bytes(data, "little") if len(data) == (count + 7) // 8 else None


def _free(words: Words, row: bytes, layout: Layout) -> Optional[int]:
    """Return the bits of the free objects: those from freeindex on whose bit in allocBits is 0."""
    freeindex, count = _numbers(row, layout)
    mask = (1 << count) - 1
    beyond = mask >> freeindex << freeindex
    if not beyond:
        return 0
    bits = _bitmap(words, row, layout.bits, count)
    return ~bits & beyond if bits is not None else None


# -- the spans --------------------------------------------------------------------------------------------------------


def _read(words: Words, layout: Layout, place: int, elements: Sequence[int]) -> GoHeap:
    heap = GoHeap(layout, place)
    found: list[Span] = []
    heap.records = sorted(set(elements))
    gaps = [b - a for a, b in zip(heap.records, heap.records[1:])]
    heap.stride = min([*(gap for gap in gaps if gap >= layout.elemsize + 16), _SPAN])
    for record in heap.records:
        row = words.image.read(record, _SPAN) or words.image.read(record, heap.stride)
        if len(row) < layout.elemsize + 16:
            heap.missing += 1
            continue
        state = row[layout.elemsize - 5]
        start, pages = struct.unpack_from("<2Q", row, _START)
        if state == _DEAD:
            continue
        if state == _MANUAL and start and start % PAGE == 0 and 0 < pages < _MOST_PAGES:
            size = struct.unpack_from("<Q", row, layout.elemsize)[0]
            heap.manual.append((start, start + pages * PAGE, size))
            continue
        wrong = _wrong(row, layout) if state == _IN_USE else "its state is not valid"
        if wrong is not None:
            heap.note(record, wrong)
            continue
        found.append(_span(words, row, layout, record))
    _sort(heap, found)
    generation = words.image.read(place - 8, 4)
    number = int.from_bytes(generation, "little")
    known = {number + by & 0xFFFFFFFF for by in (-2, -1, 0, 1, 3)}
    if len(generation) == 4 and number % 2 == 0 and all(span.sweepgen in known for span in heap.spans):
        heap.sweepgen = number
        swept_now = number - 1 & 0xFFFFFFFF
        heap.spans = [settled(words, layout, each) if each.sweepgen == swept_now else each for each in heap.spans]
    return heap


def settled(words: Words, layout: Layout, span: Span) -> Span:
    """Return a span that the sweeper has in its hands, with the objects that it leaves in use.

    The sweeper sets the count of objects, then freeindex to 0, then makes the marks allocBits (runtime/mgcsweep.go). In
    between allocBits are those of the sweep before.
    """
    row = words.image.read(span.record, _SPAN) or words.image.read(span.record, layout.elemsize + 16)
    if len(row) < layout.elemsize or span.free is None:
        return span
    (used,) = struct.unpack_from("<H", row, layout.elemsize - 8)
    if span.objects - bin(span.free).count("1") == used:
        return span
    marks, every = _bitmap(words, row, layout.bits + 8, span.objects), (1 << span.objects) - 1
    if marks is not None and bin(marks & every).count("1") == used:
        return span._replace(free=~marks & every)
    return span._replace(free=None)


def _span(words: Words, row: bytes, layout: Layout, record: int) -> Span:
    start, pages = struct.unpack_from("<2Q", row, _START)
    size, limit = struct.unpack_from("<2Q", row, layout.elemsize)
    sweepgen = struct.unpack_from("<I", row, layout.elemsize - 16)[0]
    number = row[layout.elemsize - 6]
    free, count = _free(words, row, layout), _numbers(row, layout)[1]
    kind = 0
    if layout.wide == 2 and number == 0 and len(row) >= layout.elemsize + 56:
        kind = struct.unpack_from("<Q", row, layout.elemsize + 48)[0]
    return Span(
        start, start + pages * PAGE, size, count, free, number >> 1, not number & 1, limit, sweepgen, record, kind
    )


def _sort(heap: GoHeap, found: list[Span]) -> None:
    """Keep the spans that lie beside each other. One that lies across another is damaged."""
    end = 0
    for span in sorted(found):
        if span.start < end:
            heap.note(span.record, f"it lies across the span at {heap.spans[-1].start:#x}")
            continue
        heap.spans.append(span)
        end = span.end
