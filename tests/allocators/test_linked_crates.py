"""Rust programs with an allocator that dmods only names, beside glibc's: snmalloc, rpmalloc and google/tcmalloc."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from tests.corekit import kernel_core

CRATE = Path(__file__).parent / "holder"
HELD = 20_000 * 2000  # bytes of the blocks, at least: src/main.rs
SIZES = re.compile(r"\((\d+) bytes\) of anonymous memory belong to no allocator that dmods walks(?:; ([\d.]+)M of it)?")
CRATES = {"snmalloc": "snmalloc", "rpmalloc": "rpmalloc", "tcmalloc": "google/tcmalloc"}
STRIPPED = ("tcmalloc",)  # those that are named without symbols, too


@pytest.mark.thorough("it downloads and builds a crate")
@pytest.mark.parametrize("feature", CRATES)
def test_it_is_named_with_the_size_of_its_memory(feature: str, tmp_path: Path) -> None:
    crate = Path(shutil.copytree(CRATE, tmp_path / "crate"))
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")}
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    argv = [cargo, "build", "--release", "--locked", "--quiet", "--features", feature]
    subprocess.run(argv, cwd=crate, check=True, env=environment)
    program = tmp_path / "target" / "release" / "holder"
    is_named(program, CRATES[feature], tmp_path / "work")
    if feature in STRIPPED:
        subprocess.run(["strip", str(program)], check=True)
        is_named(program, CRATES[feature], tmp_path / "stripped")


def is_named(program: Path, name: str, work: Path) -> None:
    work.mkdir()
    heap = find_heap(CoreFile(str(kernel_core(program, work))))
    named = [note for note in heap.notes if note.startswith(f"blocks of {name} are not walked")]
    assert len(named) == 1
    (found,) = (found for note in heap.notes if (found := SIZES.search(note)))
    # snmalloc reserves far more than it uses, and keeps it out of the dump.
    assert int(found[1]) >= HELD
    assert found[2] is None or HELD <= float(found[2]) * (1 << 20) < 2 * HELD
    assert heap.leaks().direct_count == 0
