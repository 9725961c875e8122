"""Values of Rust that are not always there (channels, cells, MaybeUninit): a program tells the types of its blocks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.corekit import kernel_core
from tests.graph.typed import compared, dump, graph_of, told_in

CRATE = Path(__file__).parent / "queues"

NAMES: dict[str, tuple[str, ...]] = {
    "TEXT": ("u8[]",),
    "SMALL": ("states::Small<states::Message, 6>",),
    "NUMBERS": ("alloc::vec::Vec<u64, alloc::alloc::Global>[]",),
}


@pytest.mark.thorough("it compiles a Rust program")
@pytest.mark.parametrize("flags", [("-O",), ()], ids=["optimized", "plain"])
def test_values_that_a_state_tells_of(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Values that are there are followed. Values that were there give no type: their memory holds others by now."""
    dumped = dump(tmp_path, ["rustc", "-g", "--edition", "2021", "-Awarnings", *flags], "states.rs")
    assert len(dumped.of("-")) == len(dumped.of("u64[]")) == 1500
    found = compared(graph_of(dumped.core), dumped.blocks, NAMES)
    assert found.wrong == []
    assert Counter(found.missing) == Counter()


@pytest.mark.thorough("it downloads and builds crates")
def test_queues_of_crates(tmp_path: Path) -> None:
    """crossbeam's queues have the states that the standard library took over; arrayvec's vectors have a length."""
    crate = Path(shutil.copytree(CRATE, tmp_path / "crate"))
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")}
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    subprocess.run([cargo, "build", "--release", "--locked", "--quiet"], cwd=crate, check=True, env=environment)
    core = kernel_core(tmp_path / "target" / "release" / "queues", tmp_path)
    blocks = told_in(tmp_path)
    assert sum(block.type == "-" for block in blocks) == 900
    names = {**NAMES, "SMALL": ("arrayvec::arrayvec::ArrayVec<queues::Message, 5>",)}
    found = compared(graph_of(core), blocks, names)
    assert found.wrong == []
    assert Counter(found.missing) == Counter()
