"""Owners of 24 containers whose structures share four sizes: tests/graph/ledger.c says which blocks each one has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers, jemallocs
from tests.corekit import HERE, compile_c, dumped_in, kernel_core
from tests.graph.ledger import BESIDE, CONTAINERS, SOURCE, dumped, judged
from tests.quick import only

_ARENAS = HERE / "graph" / "system_memory.c"
_FEW = (2000, 1000, 0, 0)
_FLAGS = ("-O0", "-O2", "-O2 -s")
_CASES = [(flags, numbers) for flags in _FLAGS for numbers in (_FEW, (6000, 0, 0, 0), (6000, 1000, 0, 0))]


@pytest.mark.parametrize(("flags", "numbers"), only([("-O2", _FEW), ("-O2 -s", _FEW)], _CASES))
def test_each_container_has_its_blocks(tmp_path: Path, flags: str, numbers: Sequence[int]) -> None:
    """To the byte, though words of main()'s stack point to blocks of all containers.

    Where the program is stripped, a list in a circle through its variable lies before another list whose nodes have the
    same size.
    """
    ledger = dumped(tmp_path, numbers, flags.split())
    assert len(ledger.containers) == CONTAINERS
    assert not ledger.wrong, str(ledger)


_LEFT_OVER = [("-O2", (6000, 1000, 1000, 0)), ("-O0", (6000, 0, 1000, 0)), ("-O2", (6000, 0, 0, 3000))]


@pytest.mark.parametrize(("flags", "numbers"), only(_LEFT_OVER[:1], _LEFT_OVER))
def test_words_left_over_in_blocks_own_little(tmp_path: Path, flags: str, numbers: Sequence[int]) -> None:
    """Such a word stands where other structures of its size have a field. They gave 30 % to several owners."""
    ledger = dumped(tmp_path, numbers, [flags])
    assert ledger.words > 900
    assert ledger.share > 0.99, str(ledger)


@pytest.mark.thorough("it needs jemalloc")
def test_jemalloc_does_not_matter(tmp_path: Path) -> None:
    """Structures of seven and of eight words have one size there, and some have their link at one offset."""
    ledger = dumped(tmp_path, (6000, 1000, 0, 0), preload=jemallocs.library())
    assert not ledger.wrong, str(ledger)
    ledger = dumped(tmp_path, (6000, 1000, 1000, 0), preload=jemallocs.library())
    assert ledger.share > 0.99, str(ledger)


@pytest.mark.parametrize("userland", ["i386-bookworm"])
def test_a_program_of_32_bits(userland: str) -> None:
    with dumped_in(userland, SOURCE, ["gcc", "-g", "-O2"], *map(str, _FEW), beside=BESIDE) as (core, sysroot):
        ledger = judged(core.parent, CoreFile(str(core), sysroot=str(sysroot)))
    assert not ledger.wrong, str(ledger)


def test_the_lines_sum_to_the_memory_of_malloc(tmp_path: Path) -> None:
    """Also what stands before the first chunk of a heap: the headers of arenas, and in 32 bits 8 bytes of alignment."""
    core = kernel_core(compile_c(_ARENAS, tmp_path / "arenas", "-pthread"), tmp_path)
    assert _sum_of_lines(core) == int((tmp_path / "truth").read_text())


@pytest.mark.parametrize("userland", ["i386-bookworm"])
def test_the_lines_sum_to_the_memory_of_malloc_in_32_bits(userland: str) -> None:
    with dumped_in(userland, _ARENAS, ["gcc", "-g", "-O1", "-pthread"]) as (core, sysroot):
        assert _sum_of_lines(core, "--sysroot", sysroot) == int((core.parent / "truth").read_text())


def _sum_of_lines(core: Path, *words: object) -> int:
    answer = answers.typed("owners", core, *words, "--top", 1 << 20)
    total = sum(row["bytes"] for row in answers.by_name(answer)["owners"])
    assert total == answer["totals"]["heap_bytes"]
    return int(total)
