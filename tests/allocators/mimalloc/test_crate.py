"""A stripped Rust program with the crate `mimalloc`: no library and no symbol names it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT
from dmods.heap.heap import find_heap
from fixtures import mimallocs as kit
from tests.corekit import kernel_core

CRATE = Path(__file__).parent / "crate"


@pytest.mark.thorough("it downloads and builds a crate")
def test_every_leak_and_nothing_else(tmp_path: Path) -> None:
    crate = Path(shutil.copytree(CRATE, tmp_path / "crate"))
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")}
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    subprocess.run([cargo, "build", "--release", "--locked", "--quiet"], cwd=crate, check=True, env=environment)
    work = tmp_path / "work"
    work.mkdir()
    core = kernel_core(tmp_path / "target" / "release" / "leaker", work)
    told = {int(line.split()[0], 16): int(line.split()[1]) for line in (work / "told").read_text().splitlines()}
    heap = find_heap(CoreFile(str(core)))
    found = {block.address: block.size for block in heap.blocks(DIRECT, INDIRECT)}
    assert found.keys() == told.keys()
    assert len(told) == 300
    assert all(told[address] <= size for address, size in found.items())
    assert kit.walked(heap).problems == []
    assert not kit.walked(heap).serves_malloc
