"""The memory of a process by use, compared with what the kernel says of it (smaps) and with what the program did."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.live.picture import open_process
from dmods.corefile.target import CoreFile
from dmods.heap.ledger import ANONYMOUS, CODE, FILES, FREE_MEMORY, HEAP, IN_USE, LEAKED, OWN, STACKS, find_ledger
from fixtures import answers
from fixtures.cores import gcore
from tests.corekit import HERE, compile_c, kernel_core

MB = 1 << 20
_SIZE, _KEPT, _LEAKED, _FREED = 1000, 2500, 500, 1000  # as the source has them
_EMPTY, _SPARSE = 48 * MB, 59 * MB  # never touched: of the block, and of the mapping


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(HERE / "heap" / "touched.c", tmp_path_factory.mktemp("touched") / "touched", "-pthread")


@pytest.fixture(scope="module")
def core(program: Path) -> Path:
    return kernel_core(program, program.parent)


@pytest.fixture
def process(program: Path) -> Iterator[int]:
    with subprocess.Popen([program, "wait"], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        yield started.pid
        started.kill()


def anonymous_rss(smaps: str) -> int:
    """Return the bytes of anonymous memory that the kernel says are there, or swapped out."""
    found = re.findall(r"^(?:Anonymous|Swap): +(\d+) kB$", smaps, re.MULTILINE)
    assert found
    return 1024 * sum(map(int, found))


def largest(core: Path) -> dict[str, Any]:
    """Return the row of `suspects` about what holds most."""
    (row,) = answers.by_name(answers.answer(CoreFile(str(core)), "suspects"))["largest"]
    return row


def test_what_a_core_says_was_touched_is_what_the_kernel_said(core: Path) -> None:
    ledger = find_ledger(CoreFile(str(core)))
    told = anonymous_rss((core.parent / "smaps").read_text())
    # Some pages were touched and are all zeros; and the kernel dumps pages of files' data that nobody wrote.
    assert abs(ledger.touched - told) < 256 << 10
    assert 10 * MB < told < 16 * MB


def test_each_use_has_what_the_program_did(core: Path) -> None:
    ledger = find_ledger(CoreFile(str(core)))
    assert ledger.judged
    (empty, never), *_others = ledger.blocks
    assert never == pytest.approx(_EMPTY, abs=8 << 10)
    used = ledger.use(IN_USE)
    assert used.bytes == pytest.approx(50 * MB + _KEPT * _SIZE, abs=64 << 10)
    assert used.untouched == pytest.approx(_EMPTY, abs=16 << 10)
    assert ledger.use(LEAKED).bytes == _LEAKED * _SIZE == ledger.use(LEAKED).touched
    assert ledger.use(FREE_MEMORY).bytes >= _FREED * _SIZE
    assert ledger.use(ANONYMOUS).bytes >= 64 * MB
    assert ledger.use(ANONYMOUS).untouched == pytest.approx(_SPARSE, abs=128 << 10)
    stacks = ledger.use(STACKS)
    assert stacks.bytes > 8 * 7 * MB  # of eight threads
    assert 9 * 4096 <= stacks.touched < MB
    assert sum(ledger.use(name).bytes for name in HEAP) == ledger.heap
    assert ledger.use(OWN).bytes > 0
    assert hex(empty) == largest(core)["address"]


def test_a_debugger_writes_zeros_for_what_was_never_touched(program: Path, core: Path, tmp_path: Path) -> None:
    with subprocess.Popen([program, "wait"], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        gcore(started.pid, tmp_path / "core")
        started.kill()
    one, other = find_ledger(CoreFile(str(tmp_path / "core"))), find_ledger(CoreFile(str(core)))
    for name in (*HEAP, ANONYMOUS, STACKS):
        assert one.use(name).touched == pytest.approx(other.use(name).touched, abs=64 << 10), name


def test_the_kernel_knows_of_a_live_process(process: int) -> None:
    ledger = find_ledger(open_process(process))
    told = anonymous_rss(Path(f"/proc/{process}/smaps").read_text())
    here = sum(use.touched for use in ledger.uses if use.name not in (FILES, CODE))
    files = ledger.use(FILES).touched
    assert here <= told <= here + files
    # Zeros that were written are there, too.
    assert ledger.use(IN_USE).untouched == pytest.approx(_EMPTY, abs=16 << 10)


def test_shares_of_the_process_leave_out_what_was_never_touched(core: Path) -> None:
    row = largest(core)
    assert row["percent"] > 90
    assert 10 < row["process_percent"] < 30  # 2 of some 12 MB


def test_memory_that_a_cut_core_lacks_is_no_memory_that_was_never_touched(core: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(core.read_bytes())
    os.truncate(cut, core.stat().st_size // 2)
    ledger, whole = find_ledger(CoreFile(str(cut))), find_ledger(CoreFile(str(core)))
    assert ledger.missing > MB
    assert whole.missing == 0
    assert ledger.untouched <= whole.untouched
    assert ledger.touched < whole.touched
    assert "The dump lacks" in answers.text(CoreFile(str(cut)), "maps")
