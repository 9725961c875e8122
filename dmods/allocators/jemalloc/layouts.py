"""The offsets in jemalloc's structures, by release, newest first.

They come from include/jemalloc/internal of each release, for x86-64 and AArch64, and were compared with the debug
information of builds of 5.2.1, 5.3.0 and 5.3.1. No table is believed by release: `find` takes a table when what it says
of a dump holds there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.allocators.jemalloc.sizes import size_classes
from dmods.base.dataclass import dataclass, replace

_POINTER = 0xFFFFFFFFFFC0  # in a leaf's entry: its target is at least 64-aligned in every release


@dataclass(frozen=True)
class Tcaches:
    """The layout by which a thread's cache is recognised and read.

    `paired` (5.3): tcache_t begins with a pointer to its tcache_slow_t. The `cache_bin_array_descriptor.bins` of that,
    at `descriptor` from its start, points back behind that pointer. Otherwise (5.2) tcache_t has the descriptor itself,
    with pointers to its small bins, at `small`, and to its large ones, at `large`. `before` it the TSD has rtree_ctx.
    """

    paired: bool
    descriptor: int
    arena: int
    link: int
    small: int
    state: int  # of the TSD that the tcache is in, from tcache_t
    large: int = 0
    before: int = 0
    tsd_arena: int = 0  # before tcache_t: the TSD's pointer to its arena
    arenas_tdata: int = 0  # a pointer before tcache_t, to memory of jemalloc's own


@dataclass(frozen=True)
class Profile:
    """Offsets in the structures of heap profiling (`MALLOC_CONF=prof:true`).

    `thread_name` is a pointer to the name in prof_tdata_t, or with `inline_name` the name itself. `requested`, `recent`
    (of an extent) and the records of freed blocks came with 5.3.
    """

    tctx: int  # in the extent
    requested: Optional[int]
    recent: Optional[int]
    gctx: int  # in prof_tctx_t
    bt: int  # in prof_gctx_t
    thread_name: int  # in prof_tdata_t
    inline_name: bool
    bt2tctx: int  # in prof_tdata_t: the table of a ckh_t
    in_tsd: int  # the pointer to prof_tdata_t, from tcache_slow_t (5.2: tcache_t)


@dataclass(frozen=True)
class Layout:
    """The layout of one release.

    The engine reads the fields from `page` on: see `Layout` in engine/core/src/allocators/jemalloc/layout.rs. Fields of
    `e_bits` are (shift, width).
    """

    name: str
    tcaches: tuple[Tcaches, ...]
    profiles: tuple[Profile, ...]
    page: int = 12
    levels: tuple[int, ...] = (18, 18)
    entry: int = 8
    pointer: int = _POINTER
    leaf_szind: tuple[int, int] = (48, 16)
    leaf_slab: tuple[int, int] = (0, 1)
    leaf_state: tuple[int, int] = (2, 3)
    alignment: int = 128
    arena: tuple[int, int] = (0, 12)
    slab: tuple[int, int] = (12, 1)
    state: tuple[int, int] = (17, 3)
    szind: tuple[int, int] = (20, 8)
    nfree: tuple[int, int] = (28, 10)
    sizes: tuple[int, ...] = tuple(size_classes()[0])
    bins: int = size_classes()[1]

    @property
    def page_size(self) -> int:
        """Return the size of a page in bytes."""
        return 1 << self.page


_PROFILE_5_3_1 = Profile(80, 72, 88, gctx=96, bt=104, thread_name=96, inline_name=True, bt2tctx=88, in_tsd=-136)
_PROFILE_5_3_0 = Profile(80, 72, 88, gctx=96, bt=104, thread_name=24, inline_name=False, bt2tctx=104, in_tsd=-152)
_PROFILE_5_2 = Profile(72, None, None, gctx=56, bt=72, thread_name=24, inline_name=False, bt2tctx=104, in_tsd=-456)

# edata_t is the same in 5.3.0 and 5.3.1; in tcache_slow_t only what follows `arena` differs.
_5_3 = Layout(
    "5.3",
    (Tcaches(paired=True, descriptor=32, arena=40, link=0, small=8, state=-40),),
    (_PROFILE_5_3_1, _PROFILE_5_3_0),
)
_TCACHES_5_2 = Tcaches(
    False,
    descriptor=936,
    arena=952,
    link=880,
    small=16,
    state=-496,
    large=1000,
    before=448,
    tsd_arena=-56,
    arenas_tdata=-48,
)
# 5.1 lacks binshards and bytes_until_sample in the TSD, and tsd_link and in_hook before the descriptor.
_TCACHES_5_1 = replace(
    _TCACHES_5_2,
    descriptor=912,
    arena=928,
    state=-448,
    large=976,
    before=408,
    tsd_arena=-16,
    arenas_tdata=-8,
)
# extent_t differs between 5.1.0 and 5.2.1 only in the fields of profiling.
_5_2 = Layout(
    "5.2",
    (_TCACHES_5_2, _TCACHES_5_1),
    (_PROFILE_5_2,),
    leaf_state=(0, 0),
    alignment=64,
    state=(16, 2),
    szind=(18, 8),
    nfree=(26, 10),
)


def _wide(layout: Layout, szind: tuple[int, int], slab: tuple[int, int]) -> Layout:
    """Return the layout as built on a machine with 57 address bits."""
    name, all_bits = f"{layout.name}, 57 address bits", (1 << 64) - 1
    levels = _levels(57 - layout.page)
    return replace(layout, name=name, levels=levels, entry=16, pointer=all_bits, leaf_szind=szind, leaf_slab=slab)


def _levels(bits: int) -> tuple[int, ...]:
    """Return RTREE_HEIGHT and rtree_levels of rtree.h for this many significant address bits above a page."""
    height = 2 if bits <= 36 else 3
    each, left = divmod(bits, height)
    return (each, each + left) if height == 2 else (each, each + left // 2, each + left - left // 2)


def _paged(layout: Layout, page: int) -> Layout:
    """Return the layout with pages of `1 << page` bytes.

    The small size classes reach further (to four pages), slabs hold more blocks (SC_LG_SLAB_MAXREGS, the words of a
    page), and 5.2's tcache_t has the bins of small classes inside.
    """
    sizes, bins = size_classes(page)
    more = bins - layout.bins
    tcaches = (_grown(shape, more) if not shape.paired else shape for shape in layout.tcaches)
    return replace(
        layout,
        name=f"{layout.name}, pages of {1 << page - 10} KiB",
        page=page,
        levels=_levels(48 - page),
        nfree=(layout.nfree[0], layout.nfree[1] + page - layout.page),
        tcaches=tuple(tcaches),
        sizes=tuple(sizes),
        bins=bins,
    )


def _grown(shape: Tcaches, more: int) -> Tcaches:
    """Return the shape of 5.2 with `more` small bins.

    Each has 24 bytes of cache_bin_t and one byte of `lg_fill_div`. `bins_large` follows them.
    """
    room = 24 * more
    return replace(
        shape,
        descriptor=shape.descriptor + room,
        arena=shape.arena + room,
        link=shape.link + room,
        large=shape.large + room + -(-more // 8) * 8,
    )


def _all() -> Iterator[Layout]:
    # Debian builds jemalloc for AArch64 with pages of 64 KiB; some machines have 16 KiB.
    for page in (12, 16, 14):
        for layout, szind, slab in ((_5_3, (5, 27), (0, 1)), (_5_2, (0, 32), (32, 1))):
            paged = _paged(layout, page) if page != layout.page else layout
            yield paged
            yield _wide(paged, szind, slab)


LAYOUTS = tuple(_all())
