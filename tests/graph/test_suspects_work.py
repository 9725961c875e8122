"""The work of `suspects` in Python does not grow with the heap: tests/graph/pointed.c.

What looks at each block is the engine's. It is counted, and not timed: calls of functions.
"""

from __future__ import annotations

import cProfile
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures.answers import answer
from tests.corekit import HERE, compile_c, kernel_core

_BLOCKS = (20_000, 80_000)
_CLIENT = pytest.param("clients", marks=pytest.mark.thorough("one shape is quick"))


def calls(core: Path) -> int:
    """Return how many calls there are while `suspects` finds one."""
    profile = cProfile.Profile()
    found = profile.runcall(answer, CoreFile(str(core)), "suspects", "--least", "1K")
    assert found["totals"]["suspects"] >= 1
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("shape", ["table", _CLIENT])
def test_calls_do_not_grow(tmp_path: Path, shape: str) -> None:
    program = compile_c(HERE / "graph" / "pointed.c", tmp_path / "pointed", "-g")
    found = []
    for blocks in (_BLOCKS[0], *_BLOCKS):  # what is done once for a process, such as imports, is done by the first
        where = tmp_path / f"{len(found)}"
        where.mkdir()
        core = kernel_core(program, where, shape, str(blocks))
        found.append(calls(core))
        core.unlink()
    assert found[2] <= 1.2 * found[1], found
