"""The bins of the arenas (unsorted, small, large): what they hold, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Optional

from dmods.allocators.glibc.structures import BIN_LINKS, BINMAP_BYTES, Arena
from dmods.base.dataclass import dataclass, field
from dmods.base.words import GRANULE, Words

if TYPE_CHECKING:
    from dmods._engine import Index, Progress

COUNT = BIN_LINKS // 2 + 1  # NBINS; bin 0 does not exist
UNSORTED, FIRST_SMALL, FIRST_LARGE = 1, 2, 64

# largebin_index: up to each shifted size, the bin is that shifted size and a base.
_STEPS = {
    8: ((6, 48, 48), (9, 20, 91), (12, 10, 110), (15, 4, 119), (18, 2, 124)),
    4: ((6, 45, 49), (9, 20, 91), (12, 10, 110), (15, 4, 119), (18, 2, 124)),
}
_BEYOND = 786432  # 3 << 18: all larger chunks are in the last bin

WHAT = {
    "not a chunk": "leads to {value:#x}, which is no chunk",
    "other arena": "leads to {value:#x}, a chunk of another arena",
    "in use": "leads to {value:#x}, a chunk that is in use",
    "wrong size": "leads to {value:#x}, a chunk of a size that does not belong there",
    "again": "leads to {value:#x}, which is on a list already: a cycle",
    "backward": "bk is {value:#x}, which is not the chunk that leads here",
    "order": "its size ({value}) is above that of the chunk before it",
    "size ring": "the ring of sizes leads to {value:#x}",
    "missing": "its links are not in the dump",
    "unlisted": "is free ({value} bytes) and on no list",
}


@dataclass(frozen=True)
class Bin:
    """One bin of an arena: its `index` as in malloc.c, the chunk sizes that belong there, and its content."""

    arena: int
    index: int
    least: int
    most: int
    count: int
    size: int

    @property
    def name(self) -> str:
        """Return the bin's name: "unsorted", "small bin 64" or "large bin 1024-1087"."""
        if self.index == UNSORTED:
            return "unsorted"
        if self.index < FIRST_LARGE:
            return f"small bin {self.least}"
        return f"large bin {self.least}-{self.most}" if self.most < 1 << 31 else f"large bin {self.least}-"


@dataclass(frozen=True)
class Problem:
    """A bad link, in the chunk (or the bin, seen as a chunk) at `address`."""

    arena: int
    bin: str
    address: int
    text: str
    fault: str = ""  # as in WHAT
    value: int = 0  # what the link, or the size, is


@dataclass
class Bins:
    """The content of all bins. `count` and `size` (chunk bytes) are by arena number."""

    bins: list[Bin] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    count: dict[int, int] = field(default_factory=dict)
    size: dict[int, int] = field(default_factory=dict)


def index_of(size: int, word: int) -> int:
    """Return the bin in which a free chunk of `size` bytes belongs (smallbin_index, largebin_index)."""
    small = 0 if word == 8 else 1  # SMALLBIN_CORRECTION: on i386 MALLOC_ALIGNMENT is more than the header
    if size < (FIRST_LARGE - small) * GRANULE:
        return size // GRANULE + small
    for shift, limit, base in _STEPS[word]:
        if size >> shift <= limit:
            return base + (size >> shift)
    return COUNT - 2


@cache
def bounds(word: int) -> list[tuple[int, int]]:
    """Return the least and the largest chunk size of each bin, by index.

    The unsorted bin takes any size. An unused bin has (1, 0).
    """
    first: dict[int, int] = {}
    # Beyond 4 KiB, bins begin only at multiples of 512.
    for size in (*range(4 * word, 4096, GRANULE), *range(4096, _BEYOND + 1, 512)):
        first.setdefault(index_of(size, word), size)
    any_size = (1 << (8 * word)) - 1
    out = [(1, 0)] * COUNT
    out[UNSORTED] = (0, any_size)
    indexes = sorted(first)
    for index, following in zip(indexes, [*indexes[1:], None]):
        out[index] = (first[index], any_size if following is None else first[following] - GRANULE)
    return out


def follow(words: Words, index: Index, arenas: Sequence[Arena], progress: Progress = None) -> Bins:
    """Follow every bin of every arena."""
    out = Bins()
    ranges = bounds(words.size)
    asked: list[tuple[int, int, int, int, bool]] = []
    which: list[tuple[int, int]] = []
    for number, arena in enumerate(arenas):
        for place in range(UNSORTED, COUNT) if not arena.blank else ():
            head = arena.bins + (place - 2) * 2 * words.size  # bin_at
            asked.append((head, number, *ranges[place], place >= FIRST_LARGE))
            which.append((number, place))
    held, out.problem_count, problems = index.bins(asked, progress)
    for (number, place), (count, size) in zip(which, held):
        out.count[number] = out.count.get(number, 0) + count
        out.size[number] = out.size.get(number, 0) + size
        out.bins.append(Bin(number, place, *ranges[place], count, size))
    for at, fault, address, value in problems:
        name = "free chunks" if fault == "unlisted" else out.bins[at].name
        out.problems.append(Problem(out.bins[at].arena, name, address, WHAT[fault].format(value=value), fault, value))
    return out


def binmap_problems(words: Words, number: int, arena: Arena, bins: Bins) -> list[Problem]:
    """Return the bins that hold chunks and lack their bit in `binmap`. malloc does not find such chunks.

    An empty bin may have its bit set.
    """
    at = arena.bins + BIN_LINKS * words.size
    data = words.image.read(at, BINMAP_BYTES)
    return [
        Problem(number, bin.name, at, "holds chunks, but its bit in binmap is clear")
        for bin in bins.bins
        if bin.arena == number and bin.index >= FIRST_SMALL and bin.count
        if len(data) == BINMAP_BYTES and not data[bin.index // 8] >> bin.index % 8 & 1
    ]


def last_remainder(words: Words, arena: Arena) -> Optional[int]:
    """Return `malloc_state.last_remainder`: the word before the bins."""
    return words.at(arena.bins - words.size)
