"""The structures of glibc's malloc: heaps, arenas (`malloc_state`), `mp_`, and malloc as a whole."""

from __future__ import annotations

from typing import Optional

from dmods.base.dataclass import dataclass, field

BIN_LINKS = 254  # NBINS * 2 - 2, malloc.c
BINMAP_BYTES = 16  # BINMAPSIZE unsigned ints
NONCONTIGUOUS = 2  # NONCONTIGUOUS_BIT of malloc_state.flags


@dataclass(frozen=True)
class HeapInfo:
    """`heap_info`: a heap of a thread arena. Its chunks lie in [start + header, start + size)."""

    start: int
    size: int
    header: int


@dataclass
class Arena:
    """One `malloc_state`. `bins` is the address of the field of that name."""

    address: int
    bins: int
    main: bool
    word: int
    flags: int
    top: int
    next: int
    attached: int
    system_mem: int
    max_system_mem: int
    locked: bool
    fastbins: tuple[int, ...]
    blank: bool = False  # malloc never set it up: all is zero but `next` (see _ring)
    room: Optional[int] = None  # bytes from top to the end of the mapping that holds it; None: not known yet
    rest: int = 0  # bytes of top where its size field is damaged and the arena's other fields say where it ends
    heaps: list[HeapInfo] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)  # what the dump lacks: no damage

    @property
    def end(self) -> int:
        """Return the end of the structure: the address after `max_system_mem`."""
        return self.bins + BIN_LINKS * self.word + BINMAP_BYTES + 5 * self.word

    @property
    def initial_top(self) -> int:
        """Return `top` of an arena that has no memory yet: its own first bin, seen as a chunk."""
        return self.bins - 2 * self.word

    @property
    def contiguous(self) -> bool:
        """Return whether the flag NONCONTIGUOUS is not set."""
        return not self.flags & NONCONTIGUOUS


@dataclass(frozen=True)
class Parameters:
    """The fields of `mp_` that count mapped chunks. `address` is the address of `sbrk_base`."""

    address: int
    n_mmaps: int
    mmapped_mem: int
    max_n_mmaps: int
    max_mmapped_mem: int
    sbrk_base: int


@dataclass
class Malloc:
    """One copy of glibc's malloc. A process has one for each libc that it loaded (dlmopen, a static plugin)."""

    arenas: list[Arena]
    parameters: Optional[Parameters] = None
    problems: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)  # what the dump lacks: no damage
    zeroed: list[int] = field(default_factory=list)  # arenas and heaps of which the dump has zeros
