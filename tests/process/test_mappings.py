"""The mapping at an address, compared with what the process said before it died."""

from __future__ import annotations

from pathlib import Path

from dmods.corefile.target import CoreFile
from dmods.process.mappings import mapping_at
from tests.corekit import crash


def test_the_mapping_at_each_boundary(tmp_path: Path) -> None:
    crashed = crash(tmp_path, "kernel")
    target = CoreFile(str(crashed.core))
    ranges = sorted((start, end) for start, end, *_rest in crashed.maps())
    assert len(ranges) > 20
    for start, end in ranges:
        for address in (start, (start + end) // 2, end - 1):
            mapping = mapping_at(target, address)
            assert mapping is not None
            assert mapping.start <= address < mapping.end
            assert start <= mapping.start
            assert mapping.end <= end
        if not any(first == end for first, _last in ranges):
            assert mapping_at(target, end) is None
    for address in (-1, 0, ranges[0][0] - 1, 1 << 64):
        assert mapping_at(target, address) is None
