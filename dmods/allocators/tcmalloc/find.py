"""Find gperftools' tcmalloc, by its central caches and by the page map that leads to their spans."""

from __future__ import annotations

from collections.abc import Sequence

from dmods import _engine
from dmods.allocators.protocol import Found, Heap
from dmods.allocators.tcmalloc.walked import debugging, walked
from dmods.base.ranges import Ranges
from dmods.base.regex import regex
from dmods.target import Target

_LIBRARY = regex(r"(?:^|/)libtcmalloc[^/]*$")


def find_tcmallocs(target: Target, owned: Ranges) -> Found:
    """Return the tcmallocs of the process. ``owned`` is the memory of other allocators.

    One is named as refused where its library is there, or a structure like its central caches, and the rest cannot be
    proven.
    """
    if target.arch.word != 8:
        return Found([], _unread(target, "only its layout on 64-bit machines is known"))
    debug = debugging(target)
    if debug is not None:
        return Found([], [f"{debug} is in the process: the debugging tcmalloc keeps a header in each block"])
    found, refused = walked(target)
    heaps = _heaps(target, [one for one in found if one.central[0] not in owned])
    at_fault = [(at, check) for at, check in refused if at not in owned]
    texts = [f"the data at {at:#x} may be tcmalloc's central cache, but is not read: {check}" for at, check in at_fault]
    if not heaps and not texts:
        texts = _unread(target, "nothing in its data looks like the central cache of gperftools 2.7 to 2.18")
    return Found(heaps, texts)


def _heaps(target: Target, found: Sequence[_engine.Tcmalloc]) -> list[Heap]:
    if not found:
        return []
    from dmods.allocators.tcmalloc.heap import heap_of

    return [heap_of(target, one) for one in found]


def _unread(target: Target, why: str) -> list[str]:
    name = next((module.name for module in target.modules() if _LIBRARY.search(module.path)), None)
    return [f"{name} is in the process, but {why}: its blocks are not known"] if name is not None else []
