"""Memory that another allocator than glibc's keeps free: the program frees 49 of 50 blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.triage.process import triage_process
from fixtures import mallocs, planted
from tests.corekit import kernel_core

KEPT = 2_000  # blocks of 2,000 bytes that the fault "untrimmed" keeps, of 100,000


@pytest.mark.thorough("it downloads mimalloc")
def test_mimalloc_keeps_free_blocks(tmp_path: Path) -> None:
    core = kernel_core(planted.program("c"), tmp_path, "untrimmed", env=mallocs.MIMALLOC.environment())
    found = triage_process(CoreFile(str(core)), "waste")
    (waste,) = found.findings
    assert waste.kind == "untrimmed"
    assert waste.what.startswith("mimalloc keeps ")
    # mimalloc gives back pages that are wholly free. Each kept block holds its page: 64 KB, 32 blocks of 2,048 bytes.
    assert KEPT * 30 * 2048 <= waste.weight <= KEPT * 31 * 2048
    assert "mi_collect" in waste.remedy
