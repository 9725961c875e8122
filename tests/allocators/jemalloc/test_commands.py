"""The commands on jemalloc's blocks: their places, jemalloc's own memory, free blocks, and the effect of damage."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import FREE, LIVE, OWN
from dmods.heap.heap import find_heap
from dmods.heap.verdict import NO_VERDICT
from fixtures import _cache, answers, jemallocs
from fixtures.cores import CoreSet
from fixtures.heaps import jemalloc_heaps


@pytest.fixture(scope="module")
def freed() -> CoreSet:
    return jemallocs.take("freed")


def report(command: str, core: Path, *args: str) -> Any:
    return answers.typed(command, core, *args)


def walk(core: Path, *args: str) -> set[int]:
    rows = report("walk", core, *args)["tables"][0]["rows"]
    return {int(row["address"], 16) for row in rows}


def test_walks_are_the_programs_own_lists(freed: CoreSet) -> None:
    truth = freed.truth
    assert walk(freed.core, "leak") == truth.leaked
    assert walk(freed.core, "buf") >= truth.addresses("live") | truth.leaked
    assert not walk(freed.core, "buf") & truth.addresses("freed")


def test_the_arenas_divide_the_blocks(freed: CoreSet) -> None:
    arenas = walk(freed.core, "arena")
    assert arenas
    parts = [walk(freed.core, "buf", hex(arena)) for arena in arenas]
    every = walk(freed.core, "buf")
    assert set().union(*parts) <= every
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_whatis_tells_blocks_from_what_is_around_them(freed: CoreSet) -> None:
    heap = find_heap(CoreFile(str(freed.core)))
    live = next(block for block in freed.truth.blocks.values() if block.state == "live")
    said = report("whatis", freed.core, hex(live.address + 1))
    block = next(table for table in said["tables"] if table["name"] == "block")["rows"][0]
    assert (block["block"], block["size"], block["allocator"]) == (hex(live.address), live.usable, "jemalloc")
    tcache = next(tcache for tcache in jemalloc_heaps(heap)[0].caches.all if tcache.tid and tcache.cached)
    cached = next(iter(tcache.cached.values()))[0]
    own = next(heap.blocks(OWN)).address
    (one,) = (each.one for each in jemalloc_heaps(heap))
    dirty = next(extent for extent in one.extents.following(0, 1 << 20) if extent[4])
    for address, words in (
        (cached, f"in the tcache of thread {tcache.tid}"),
        (own, "by jemalloc for itself"),
        (dirty[1], "in an extent of arena"),
        (next(iter(one.base))[0], "keeps for its own records"),
    ):
        assert words in report("whatis", freed.core, hex(address))["tables"][0]["rows"][0]["sentence"]


def test_a_sound_heap_is_clean(freed: CoreSet) -> None:
    said = report("heapcheck", freed.core)
    assert said["totals"]["problems"] == 0
    assert any("jemalloc" in row["arena"] and row["verdict"] == "clean" for row in said["tables"][0]["rows"])


# -- damage -----------------------------------------------------------------------------------------------------------


def damaged(made: CoreSet, path: Path, edits: dict[int, int]) -> Path:
    """Return a copy of the core with those words (address -> value) overwritten."""
    target = CoreFile(str(made.core))
    data = bytearray(made.core.read_bytes())
    from dmods.modules import elf

    header = elf.parse(lambda offset, size: bytes(data[offset : offset + size]), "core")
    for address, value in edits.items():
        segment = next(s for s in header.segments if s.type == 1 and s.vaddr <= address < s.vaddr + s.filesz)
        at = segment.offset + address - segment.vaddr
        data[at : at + 8] = (value & (1 << 64) - 1).to_bytes(8, "little")
    assert target.path
    copy = path / made.core.name
    copy.write_bytes(data)
    return copy


def test_a_damaged_extent_costs_its_blocks_and_a_note(freed: CoreSet, tmp_path: Path) -> None:
    heap = find_heap(CoreFile(str(freed.core)))
    slab = next(e for e in jemalloc_heaps(heap)[0].one.extents.following(0, 1 << 20) if e[6] and e[5] is not None)
    core = damaged(freed, tmp_path, {slab[0] + 8: slab[1] + (1 << 20)})  # e_addr
    broken = find_heap(CoreFile(str(core)))
    assert any("contradict themselves" in note for note in broken.notes)
    lost = {b.address for b in heap.blocks(LIVE, FREE)} - {b.address for b in broken.blocks(LIVE, FREE)}
    assert lost
    assert all(slab[1] <= address < slab[1] + slab[2] for address in lost)
    said = report("heapcheck", core)
    assert said["totals"]["contradictions"] >= 1


def test_a_count_that_is_not_the_bitmaps_is_told(freed: CoreSet, tmp_path: Path) -> None:
    heap = find_heap(CoreFile(str(freed.core)))
    slab = next(e for e in jemalloc_heaps(heap)[0].one.extents.following(0, 1 << 20) if e[6] and e[5] is not None)
    bits = heap.words.at(slab[0]) or 0
    said = report("heapcheck", damaged(freed, tmp_path, {slab[0]: bits ^ 1 << 28}))
    texts = [row["what"] for table in said["tables"] if table["name"] == "lists" for row in table["rows"]]
    assert any("count of free regions" in text for text in texts)


def test_a_tree_that_no_layout_reads_is_refused_by_name(freed: CoreSet, tmp_path: Path) -> None:
    heap = find_heap(CoreFile(str(freed.core)))
    edits = {extent[0]: (1 << 64) - 1 for extent in jemalloc_heaps(heap)[0].one.extents.following(0, 1 << 20)}
    broken = find_heap(CoreFile(str(damaged(freed, tmp_path, edits))))
    assert jemalloc_heaps(broken) == []
    (note,) = [note for note in broken.notes if "fits no known layout" in note]
    assert "bits" in note or "leaf" in note
    assert broken.leaks().direct_count >= 0  # the rest of the answer is still given


def test_whatever_is_overwritten_there_is_an_answer(freed: CoreSet, tmp_path: Path) -> None:
    heap = find_heap(CoreFile(str(freed.core)))
    (found,) = jemalloc_heaps(heap)
    one, caches = found.one, found.caches
    extents = one.extents.following(0, 1 << 20)
    places = [edata + 8 * word for edata, *_ in extents for word in range(16)]
    for tcache in caches.all:
        places += [tcache.address + 8 * word for word in range(220)]
        places += [tcache.slow + 8 * word for word in range(30)]
        places += [at for blocks in tcache.cached.values() for at in blocks]
    places += [one.root + 8 * (extent[1] >> 30) for extent in extents]
    dice = random.Random(7)
    values = [0, 1, (1 << 64) - 1, one.root, extents[0][0], extents[0][1], 1 << 47, 0x7A7A7A7A7A7A7A7A]
    for _ in range(3 if _cache.QUICK in os.environ else 12):
        chosen = dice.sample(places, 1 << dice.randrange(10))
        edits = {at: dice.choice([*values, dice.getrandbits(64), dice.choice(places)]) for at in chosen}
        core = damaged(freed, tmp_path, edits)
        broken = find_heap(CoreFile(str(core)))
        broken.leaks()
        list(broken.blocks(LIVE, FREE, OWN))
        for words in (("heapcheck", core), ("malloc_stats", core, "--bins")):
            assert answers.dmods(*words, "--json").returncode in (0, NO_VERDICT)
        assert all(isinstance(note, str) for note in broken.notes)
