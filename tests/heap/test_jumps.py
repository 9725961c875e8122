"""Blocks that only a jmp_buf holds, in a register that glibc encrypts with its pointer guard."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT
from dmods.heap.heap import find_heap
from tests.corekit import HERE, compile_c, kernel_core


@pytest.mark.skipif(platform.machine() != "x86_64", reason="it is about rbp")
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("linked", ["-Wl,-z,now", "-static", "-no-pie"])
def test_a_jmp_buf_holds_blocks(linked: str, gone: bool, tmp_path: Path) -> None:
    program = compile_c(HERE / "jumps.c", tmp_path / "jumps", linked)
    core = kernel_core(program, tmp_path)
    if gone:
        program.unlink()
    heap = find_heap(CoreFile(str(core)))
    reported = {block.address for block in heap.blocks(DIRECT, INDIRECT)}
    rows = [line.split() for line in (tmp_path / "truth").read_text().splitlines()]
    lost = [name for name, hidden in rows if ~int(hidden) & (1 << 64) - 1 in reported]
    assert lost == ["lost", "in-freed-block"]
