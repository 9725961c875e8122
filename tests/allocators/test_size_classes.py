"""The size classes of tcmalloc and mimalloc, compared with malloc_usable_size in the process."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from dmods.allocators.size_classes import size_classes
from tests.heap.test_recorded import MIMALLOC, TCMALLOC, take

LEAST = 32  # the auditor asks for no less


@pytest.mark.thorough("a core of its own")
@pytest.mark.parametrize("allocator", [TCMALLOC, MIMALLOC])
def test_usable_sizes(allocator: str) -> None:
    classes, compared = size_classes(allocator), 0
    for block in take("sizes", allocator).truth.blocks.values():
        # memalign and realloc may give more
        if block.name.startswith("malloc-") and block.size <= classes[-1]:
            assert block.usable == classes[bisect_left(classes, max(LEAST, block.size))], block
            compared += 1
    assert compared > 30
