"""The red zone of threads in system calls: what the code behind the call reads holds blocks, and nothing else does."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from dmods.base.ranges import Ranges
from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT
from dmods.heap.heap import find_heap
from tests.corekit import HERE, compile_c, kernel_core


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have no red zone")
@pytest.mark.parametrize("linked", ["-Wl,-z,now", "-static"])
def test_only_a_red_zone_that_is_read_holds_blocks(linked: str, tmp_path: Path) -> None:
    program = compile_c(HERE / "redzone.c", tmp_path / "redzone", "-pthread", linked)
    target = CoreFile(str(kernel_core(program, tmp_path, "die")))
    heap = find_heap(target)
    reported = {block.address for block in heap.blocks(DIRECT, INDIRECT)}
    stack_pointers = {thread.tid: thread.registers["rsp"] for thread in target.threads()}
    dead = Ranges(heap.roots.dead)
    truth = (tmp_path / "truth").read_text().splitlines()
    assert len(truth) == 30
    for line in truth:
        name, live, hidden, tid = line.split()
        lost = ~int(hidden) & (1 << 64) - 1 in reported
        if name.startswith("in_"):
            # An old word in libc's own frame may hold the block. Below the frame, none may.
            sp = stack_pointers[int(tid)]
            assert dead.within(sp - 128, sp) == [(sp - 128, sp)], name
        else:
            assert lost == (live == "0"), name


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have no red zone")
@pytest.mark.parametrize(("function", "lost"), [("leaf", 0), ("caller", 1)])
def test_a_function_that_calls_others_has_no_red_zone(function: str, lost: int, tmp_path: Path) -> None:
    program = compile_c(HERE / "heap" / "trapped.c", tmp_path / "trapped", "-s")
    target = CoreFile(str(kernel_core(program, tmp_path, function)))
    assert find_heap(target).leaks().direct_count == lost
