"""Find `mp_`, the parameters of glibc's malloc."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from dmods.allocators.glibc.structures import Arena, Parameters
from dmods.base.words import GRANULE, Words
from dmods.modules.elf import PAGE
from dmods.target import AddressRange

_NEIGHBOURHOOD = 64 << 10
_SETTINGS = 16  # words; mp_ has at most so many before sbrk_base
_MOST_BINS = 128  # of a tcache


def find_parameters(words: Words, where: AddressRange, main: Arena) -> Optional[Parameters]:
    """Return `mp_` in the data of the libc that holds `main`.

    Its fields around `sbrk_base` have kept their order since 2.4: n_mmaps, n_mmaps_max, max_n_mmaps, no_dyn_threshold
    (ints; hp_flags before them since 2.35), mmapped_mem, max_mmapped_mem, sbrk_base, then the parameters of the tcache
    (2.26).
    """
    # Both are static variables of malloc.c, so they are neighbours.
    start = max(where.start, main.address - _NEIGHBOURHOOD) // words.size * words.size
    count = (min(where.end, main.end + _NEIGHBOURHOOD) - start) // words.size
    data = words.many(start, count)
    if data is None:
        return None
    raw = words.image.read(start, count * words.size)
    base = None
    if main.top != main.initial_top and main.contiguous:
        top_size = words.at(main.top + words.size) or 0
        base = main.top + (top_size & ~7) - main.system_mem
    best: Optional[tuple[int, Parameters]] = None
    for i in range(8, count - 4):
        if not (1 <= data[i + 1] <= _MOST_BINS or data[i] == base):
            continue  # most words: a call for each would take longer than all else here
        for score, fields in _parameters_at(words, data, raw, i, base):
            if best is None or score > best[0]:
                best = (score, Parameters(start + i * words.size, *fields))
    return best[1] if best else None


def noted_sizes(words: Words, parameters: Parameters) -> Iterator[tuple[int, int]]:
    """Yield (address, value) of the words of `mp_` that may be sizes in whole pages.

    mmap_threshold and trim_threshold follow the largest mapped chunk that was freed. Two more words count the bytes
    that are mapped and were mapped at most.
    """
    for at in range(parameters.address - _SETTINGS * words.size, parameters.address, words.size):
        value = words.at(at)
        if value and value % PAGE == 0:
            yield at, value


def _parameters_at(
    words: Words, data: Sequence[int], raw: bytes, i: int, base: Optional[int]
) -> Iterable[tuple[int, tuple[int, ...]]]:
    """Yield how strong the evidence for a candidate is, and the fields of Parameters behind `address`."""
    mapped, most_mapped, sbrk_base = data[i - 2], data[i - 1], data[i]
    bins, limit, fill = data[i + 1], data[i + 2], data[i + 3]
    tcache = 1 <= bins <= _MOST_BINS and 8 <= limit <= 1 << 23 and fill <= 0xFFFF
    known = base is not None and sbrk_base == base
    if not (tcache or known) or mapped > most_mapped or mapped % GRANULE or most_mapped % GRANULE:
        return
    offset = i * words.size
    for before in (16, 20, 24):  # bytes from n_mmaps to mmapped_mem: with hp_flags the ints are padded
        at = offset - 2 * words.size - before
        if at < 0:
            continue
        ints = [int.from_bytes(raw[at + 4 * k : at + 4 * k + 4], "little", signed=True) for k in range(4)]
        n_mmaps, n_mmaps_max, max_n_mmaps, no_dyn = ints
        if not (0 <= n_mmaps <= max_n_mmaps and n_mmaps_max >= 0 and no_dyn in (0, 1)):
            continue
        if (n_mmaps == 0) != (mapped == 0) or (max_n_mmaps == 0) != (most_mapped == 0):
            continue
        default_limit = n_mmaps_max == 65536
        score = 4 * known + 2 * default_limit + tcache + (bins == 64)
        if score >= 3:
            yield score, (n_mmaps, mapped, max_n_mmaps, most_mapped, sbrk_base)
