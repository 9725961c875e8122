"""Blocks with mappings of their own, beside what malloc says of them (fixtures/userland/remapped.c)."""

from __future__ import annotations

import pytest

from dmods import _engine
from dmods.heap.heap import find_heap
from fixtures import cores, judge
from fixtures.heaps import glibc


@pytest.mark.parametrize("how", ["kernel", "gcore"])
def test_resized_blocks_are_where_malloc_has_them(how: str) -> None:
    """malloc_usable_size of each, and the number and the bytes of mallinfo2."""
    made = cores.take("remapped", how)
    heap = find_heap(judge.open_core(made))
    assert not judge.problems(heap, made.truth)
    assert heap.notes == []
    said = (made.truth.mallinfo["hblks"], made.truth.mallinfo["hblkhd"])
    assert (glibc(heap).layout.mmapped_count, glibc(heap).layout.mmapped_bytes) == said


@pytest.mark.parametrize("deep", [False, True])
def test_they_are_found_without_a_sum_to_compare_with(deep: bool) -> None:
    """No `mp_` is asked. Other memory may look like a chunk, so only the blocks themselves are compared."""
    made = cores.take("remapped")
    target = judge.open_core(made)
    anonymous = [(m.start, m.end) for m in target.mappings() if m.path is None and "w" in m.flags]
    found = _engine.find_mmapped(target.image(), anonymous, anonymous, 8, 4096, deep)
    sizes = {chunk + 16: usable for chunk, _base, _end, usable in found}
    expected = {block.address: block.usable for block in made.truth.blocks.values()}
    assert {address: sizes.get(address) for address in expected} == expected


@pytest.mark.thorough("it makes a core of its own")
def test_numbers_that_look_like_headers_are_no_blocks() -> None:
    """fixtures/userland/numbers.c. malloc's own count and sum tell which mapped blocks there are."""
    made = cores.take("numbers")
    target = judge.open_core(made)
    heap = find_heap(target)
    assert not judge.problems(heap, made.truth)
    assert heap.notes == []
    said = (made.truth.mallinfo["hblks"], made.truth.mallinfo["hblkhd"])
    assert (glibc(heap).layout.mmapped_count, glibc(heap).layout.mmapped_bytes) == said
    anonymous = [(m.start, m.end) for m in target.mappings() if m.path is None and "w" in m.flags]
    assert len(_engine.find_mmapped(target.image(), anonymous, anonymous, 8, 4096, True)) > said[0] + 2
