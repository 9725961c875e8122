"""The work for the types of blocks grows as the heap does, and not faster: tests/graph/work.cc.

It is counted, and not timed: look-ups of blocks, reads of memory, words of objects, and what is taken from lists.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.corekit import HERE, kernel_core
from tests.graph.typed import graph_of

_SIZES = (1000, 4000, 16000)
_SHAPES = ("list", "tree", "map", "vector", "leaked", "header", "pool", "hidden")
_COUNTED = ("look-ups", "reads", "words", "taken")
_FEW = {"reads": 64}  # a piece of memory has many blocks, and two of them may share a place in the cache


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("work") / "work"
    subprocess.run(["g++", "-O1", "-g", str(HERE / "graph" / "work.cc"), "-o", str(made)], check=True)
    return made


def work(program: Path, where: Path, shape: str, blocks: int) -> tuple[int, ...]:
    where.mkdir()
    core = kernel_core(program, where, shape, str(blocks))
    graph = graph_of(core)
    core.unlink()
    return graph.engine.work


@pytest.mark.parametrize("shape", _SHAPES)
def test_the_work_per_block_does_not_grow(program: Path, tmp_path: Path, shape: str) -> None:
    small, middle, large = (work(program, tmp_path / str(size), shape, size) for size in _SIZES)
    assert len(small) == len(_COUNTED)
    assert min(large) > 0
    for name, *counts in zip(_COUNTED, small, middle, large):
        # What a process has in any case is in all three.
        first, second = counts[1] - counts[0], counts[2] - counts[1]
        assert second <= 1.2 * 4 * first + _FEW.get(name, 0), (name, counts)
