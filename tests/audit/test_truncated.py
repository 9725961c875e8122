"""A stack that is cut at the frame limit says so, from the auditor to ``Stack.truncated``."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.records.model import Records, Stack
from dmods.records.sources import allocation_records
from tests.audit.auditor import compiled, environment
from tests.corekit import kernel_core

DEPTHS = 201  # of deep.c


def taken(folder: Path, words: str) -> tuple[Records, list[tuple[int, int, int]]]:
    """Return the records in a core of deep.c, and for each depth the kept block, the freed block and their frames."""
    program = compiled("deep.c", folder / "deep")
    work = folder / "work"
    work.mkdir()
    core = kernel_core(program, work, str(folder / "told"), env=environment(words))
    rows = [line.split() for line in (folder / "told").read_text().splitlines()]
    assert len(rows) == DEPTHS
    return allocation_records(CoreFile(str(core))), [(int(kept, 16), int(freed, 16), int(n)) for kept, freed, n in rows]


def check(stack: Stack, frames: int, limit: int) -> None:
    assert len(stack.frames) == min(frames, limit)
    assert stack.truncated == (frames > limit)


@pytest.mark.parametrize(("words", "limit"), [("audit", 64), ("audit=15", 15), ("audit=7", 7)])
def test_records(tmp_path: Path, words: str, limit: int) -> None:
    found, told = taken(tmp_path, words)
    assert {frames - limit for _, _, frames in told} >= {0, 1, 100}
    for kept, _, frames in told:
        record = found.of_block(kept)
        assert record is not None
        check(record.stack, frames, limit)


@pytest.mark.parametrize(("words", "limit"), [("sample=1", 64), ("audit=15,sample=1", 15)])
def test_samples(tmp_path: Path, words: str, limit: int) -> None:
    """A block of 64 bytes is a sample with a chance of 1 - e^-64."""
    found, told = taken(tmp_path, words)
    assert found.sampled
    for kept, _, frames in told:
        record = found.of_block(kept)
        assert record is not None
        check(record.stack, frames, limit)


@pytest.mark.parametrize(("words", "limit"), [("audit,log=10000", 64), ("audit=15,log=10000,guards", 15)])
def test_transactions(tmp_path: Path, words: str, limit: int) -> None:
    found, told = taken(tmp_path, words)
    for kept, freed, frames in told:
        allocated = found.last_of(kept)
        assert allocated is not None
        assert not allocated.freed
        check(allocated.stack, frames, limit)
        gone = found.last_of(freed)
        assert gone is not None
        assert gone.freed
        check(gone.stack, frames, limit)
        check(gone.alloc_stack, frames, limit)


def test_records_of_freed_blocks(tmp_path: Path) -> None:
    """With guards the record of a freed block stays, without a log too."""
    found, told = taken(tmp_path, "audit,guards")
    gone = {transaction.address: transaction for transaction in found.log(freed=True)}
    for _, freed, frames in told:
        check(gone[freed].stack, frames, 64)
