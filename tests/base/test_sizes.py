"""human_size, compared with numfmt of coreutils, which can round the same way."""

from __future__ import annotations

import os
import random
import subprocess

import pytest

from dmods.base.sizes import human_size


def test_like_numfmt() -> None:
    chosen = random.Random(10)
    edges = [0, 1, 1023, 1024, 1025, 1536, 10188, 10189, 10240, 1048063, 1048064, 1048575, 1048576, 2**53]
    sizes = edges + [chosen.getrandbits(chosen.randrange(1, 50)) for _ in range(2000)]
    command = ["numfmt", "--to=iec", "--round=nearest", *map(str, sizes)]
    plain = {**os.environ, "LC_ALL": "C"}  # elsewhere the decimal point may be a comma
    expected = subprocess.run(command, capture_output=True, text=True, check=True, env=plain).stdout.split()
    assert [human_size(size) for size in sizes] == expected


def test_differences_keep_their_sign() -> None:
    assert human_size(-1536) == "-1.5K"


@pytest.mark.parametrize("size", [2**63 - 1, 2**64, 2**74])
def test_sizes_beyond_any_memory_are_still_numbers(size: int) -> None:
    assert human_size(size).endswith("E")
