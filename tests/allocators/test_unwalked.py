"""Heaps that are not walked are named, and no block on them is called a leak."""

from __future__ import annotations

import pytest

from dmods.heap.process_heap import find_heap
from fixtures import cores, judge, userlands
from fixtures.programs import PROGRAMS

PRELOADED = {"libtcmalloc_minimal.so.4": "tcmalloc", "libmimalloc.so.2": "mimalloc"}


@pytest.mark.parametrize("library", PRELOADED)
def test_another_allocator_by_its_file(library: str) -> None:
    package = {"libtcmalloc_minimal.so.4": "libtcmalloc-minimal4", "libmimalloc.so.2": "libmimalloc2.0"}[library]
    path = userlands.packaged(userlands.get("host"), package, library)
    heap = find_heap(judge.open_core(cores.take("graph", env={"LD_PRELOAD": str(path)})))
    assert [note for note in heap.notes if note.startswith(f"blocks of {PRELOADED[library]} are not walked")]
    assert heap.leaks().direct_count == 0


@pytest.mark.parametrize(
    ("symbol", "name"), [("TCMallocInternalMalloc", "tcmalloc"), ("moz_arena_malloc", "mozjemalloc")]
)
def test_another_allocator_by_its_symbol(symbol: str, name: str) -> None:
    """Google's own tcmalloc and Firefox's allocator are always linked statically."""
    land = userlands.get("host")
    named = cores.build("graph", extra=[f"-Wl,--defsym={symbol}=malloc"])
    made = cores.taken(PROGRAMS["graph"], land, named, "kernel", settings={}, name="graph-named")
    notes = find_heap(judge.open_core(made)).notes
    assert [note for note in notes if note.startswith(f"blocks of {name} are not walked")]
    assert not [note for note in find_heap(judge.open_core(cores.take("graph"))).notes if "not walked" in note]
