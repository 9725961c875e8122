"""The walkers that ``walk`` has for kernels. A new walker is one entry in WALKERS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Optional

from dmods._engine import PAGE_KINDS, hex_lines
from dmods.commands._walker import Rows, Walker
from dmods.errors import UsageError, UserError
from dmods.report import Column, Value
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.pages.frame_ranges import Range
from drgnext.kernel.pages.kfence import FREED
from drgnext.kernel.pages.kinds import KINDS
from drgnext.kernel.pages.lists import zones
from drgnext.kernel.pages.memmap import PageArray, page_array
from drgnext.kernel.slabs.caches import SlabCacheInfo
from drgnext.kernel.slabs.leaks import kernel_leaks
from drgnext.kernel.slabs.objects import SlabObjects, slab_objects
from drgnext.kernel.slabs.tracks import Tracks

if TYPE_CHECKING:
    from drgn import Object


_PAGE = (Column("address", "address"), Column("pfn", "count"), Column("kind"))
_TASK = (Column("address", "address"), Column("pid", "count"), Column("tgid", "count"), Column("name"))
_NAMED = (Column("address", "address"), Column("name"))
_ONE = (Column("address", "address"),)
_BUFCTL = (Column("address", "address"), Column("buffer", "address"), Column("pid", "count"), Column("cache"))
_LEAK = (Column("address", "address"), Column("buffer", "address"), Column("cache"))
_LEAKED = (Column("address", "address"), Column("cache"))
_GUARDED = (
    Column("address", "address"),
    Column("bytes", "bytes"),
    Column("cache"),
    Column("state"),
    Column("pid", "count", null="nothing is recorded", about="of the free, if there was one"),
    Column("record", "address", null="nothing is recorded"),
)
_VMAP = (Column("address", "address"), Column("start", "address"), Column("end", "address"))

# The number of pages walked at a time: half a gigabyte of memory with 4 KB pages, and 2.5 MB of text. No free block
# crosses such a boundary.
_AT_ONCE = 1 << 17


def _pieces(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield the ranges in pieces of at most _AT_ONCE pages."""
    for start, end in ranges:
        at = start
        while at < end:
            until = min(end, (at // _AT_ONCE + 1) * _AT_ONCE)
            yield at, until
            at = until


def _kind_number(kind: str) -> int:
    """Return the index of the kind in PAGE_KINDS. Raises UsageError for an unknown kind."""
    if kind not in KINDS:
        raise UsageError(f"no kind of page is called {kind!r}", f"walk allpages [KIND]; kinds: {' '.join(KINDS)}")
    return PAGE_KINDS.index(kind)


def _page_rows(kernel: Kernel, kind: Optional[str]) -> Rows:
    """Return a row for each page, or for each page of a kind."""
    wanted = None if kind is None else _kind_number(kind)
    return _classified(page_array(kernel), wanted)


def _classified(array: PageArray, wanted: Optional[int]) -> Iterator[Sequence[Value]]:
    """Yield (address of struct page, page frame, kind) for the wanted pages."""
    base, size = array.layout["base"], array.layout["size"]
    for start, end in _pieces(array.ranges):
        numbers = array.classify([(start, end)]).numbers
        if wanted is None:
            chosen: Iterable[int] = range(start, end)
            kinds = (PAGE_KINDS[number] for number in numbers)
        else:
            chosen = compress(range(start, end), map(wanted.__eq__, numbers))
            kinds = (PAGE_KINDS[wanted] for _ in iter(int, 1))
        for pfn, name in zip(chosen, kinds):
            yield base + pfn * size, pfn, name


def _page_lines(kernel: Kernel, kind: Optional[str]) -> Iterable[str]:
    """Return the addresses of the wanted pages' struct pages as text."""
    wanted = None if kind is None else _kind_number(kind)
    return _lines(page_array(kernel), wanted)


def _lines(array: PageArray, wanted: Optional[int]) -> Iterator[str]:
    """Yield the addresses of the wanted pages' struct pages, many lines at a time."""
    base, size = array.layout["base"], array.layout["size"]
    for start, end in _pieces(array.ranges):
        numbers = None if wanted is None else array.classify([(start, end)]).numbers
        yield hex_lines(base + start * size, size, end - start, numbers, wanted or 0)


def _tasks(kernel: Kernel, _narrowed: Optional[str]) -> Iterator[Sequence[Value]]:
    """Yield the row of each thread."""
    from drgn.helpers.linux.pid import for_each_task

    for task in for_each_task(kernel.prog):
        yield task.value_(), task.pid.value_(), task.tgid.value_(), _text(task.comm)


def _caches(kernel: Kernel, _narrowed: Optional[str]) -> Iterator[Sequence[Value]]:
    """Yield the row of each slab cache."""
    from drgn.helpers.linux.slab import for_each_slab_cache

    for cache in for_each_slab_cache(kernel.prog):
        yield cache.value_(), _text(cache.name)


def _zones(kernel: Kernel, _narrowed: Optional[str]) -> Iterator[Sequence[Value]]:
    """Yield the row of each zone that has pages."""
    for zone in zones(kernel.prog):
        yield zone.address_, _text(zone.name)


def _vmap(kernel: Kernel, _narrowed: Optional[str]) -> Iterator[Sequence[Value]]:
    """Yield the row of each vmap area."""
    from drgn.helpers.linux.mm import for_each_vmap_area

    for area in for_each_vmap_area(kernel.prog):
        yield area.value_(), area.va_start.value_(), area.va_end.value_()


def _cache_of(slabs: SlabObjects, text: Optional[str], name: str) -> SlabCacheInfo:
    """Return the cache that the user means. Raises UsageError, or UserError if the dump may lack it."""
    found = slabs.named(text) if text is not None else None
    if found is None:
        if text is not None and slabs.missing_caches:
            raise UserError(
                f"no slab cache is called {text!r}, but some caches may be missing: {slabs.missing_caches[0]}",
                "copy or take the dump again, whole; `kmastat` lists the caches that it has",
            )
        what = f"no slab cache is called {text!r}" if text is not None else f"walk {name} needs the name of a cache"
        raise UsageError(what, f"walk {name} CACHE; `kmastat` lists them")
    return found


def _slab(kernel: Kernel, text: Optional[str]) -> Rows:
    """Return the allocated objects of a cache."""
    slabs = slab_objects(kernel)
    return ((address,) for address in slabs.walk(_cache_of(slabs, text, "slab"), free=False))


def _free_slab(kernel: Kernel, text: Optional[str]) -> Rows:
    """Return the free objects of a cache."""
    slabs = slab_objects(kernel)
    return ((address,) for address in slabs.walk(_cache_of(slabs, text, "freeslab"), free=True))


def _bufctls(kernel: Kernel, text: Optional[str]) -> Iterator[Sequence[Value]]:
    """Yield the records of allocated objects, of one cache or of all."""
    slabs = slab_objects(kernel)
    tracks = Tracks(slabs)
    tracks.require()
    for cache in slabs.caches if text is None else [_cache_of(slabs, text, "bufctl")]:
        for address in slabs.walk(cache, free=False) if cache.track else ():
            track = slabs.engine.track(address, False)
            if track is not None:
                yield track[0], address, track[3], cache.name


def _guarded(kernel: Kernel, _text: Optional[str]) -> Iterator[Sequence[Value]]:
    """Yield the objects in KFENCE's pool. The pid and the record are those of the free, where there was one."""
    guarded = slab_objects(kernel).guarded
    for cache in guarded.objects:
        one = cache.guarded
        if one is not None:
            track = guarded.track(one, one.state == FREED)
            who = (track.pid, track.at) if track is not None else (None, None)
            yield one.address, one.size, cache.name, one.state, *who


def _leaks(kernel: Kernel, _text: Optional[str]) -> Iterator[Sequence[Value]]:
    """Yield the direct leaks: their records where there are any."""
    for address, cache, direct in _leaked(kernel):
        if direct:
            track = kernel_leaks(kernel).slabs.engine.track(address, False)
            yield address if track is None else track[0], address, cache


def _leaked_objects(kernel: Kernel, _text: Optional[str]) -> Iterator[Sequence[Value]]:
    """Yield every leaked object."""
    return ((address, cache) for address, cache, _direct in _leaked(kernel))


def _leaked(kernel: Kernel) -> Iterator[tuple[int, str, bool]]:
    """Yield (address, cache, whether direct) of each leaked object, without what the kernel dropped on purpose."""
    leaks = kernel_leaks(kernel)
    at: Optional[int] = 0
    while at is not None:
        rows, at = leaks.slabs.engine.leaked(at, _AT_ONCE)
        for address, _size, number, direct, _kept, _bytes in rows:
            cache = leaks.slabs.cache(number)
            yield address, cache.name if cache is not None else "kmalloc-large", direct


def _text(string: Object) -> str:
    """Return a string of the kernel as text."""
    return bytes(string.string_()).decode(errors="backslashreplace")


WALKERS: Mapping[str, Walker[Kernel, Optional[str]]] = {
    "allpages": Walker(
        "every page: its struct page",
        _PAGE,
        _page_rows,
        "only pages of that kind, by the names of `memstat -v --json`: anon, slab, free, ...",
        lines=_page_lines,
    ),
    "task": Walker("every thread: its task_struct", _TASK, _tasks),
    "kmem_cache": Walker("slab caches", _NAMED, _caches),
    "slab": Walker("allocated objects of a slab cache", _ONE, _slab, "(required) the name of the cache"),
    "freeslab": Walker("free objects of a slab cache", _ONE, _free_slab, "(required) the name of the cache"),
    "bufctl": Walker(
        "records of allocated slab objects (slub_debug=U)", _BUFCTL, _bufctls, "only those of that slab cache"
    ),
    "kfence": Walker("objects that KFENCE guards, or guarded until they were freed", _GUARDED, _guarded),
    "leak": Walker("direct leaks of slab objects: their records, where there are any", _LEAK, _leaks),
    "leakbuf": Walker("leaked slab objects", _LEAKED, _leaked_objects),
    "zone": Walker("memory zones that have pages", _NAMED, _zones),
    "vmap": Walker("areas of vmalloc and vmap: their vmap_area", _VMAP, _vmap),
}
