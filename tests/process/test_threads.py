"""Stacks by glibc's own records, compared with what pthread_getattr_np told the threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.process.stack_bounds import first_stack, stack_block
from dmods.process.threads import live_stacks, stacks_of
from fixtures import cores
from tests.corekit import HERE, compile_c, kernel_core


@pytest.mark.parametrize("userland", ["host", "bullseye", "trixie", "sid"])
def test_stacks_of_live_and_of_exited_threads(userland: str) -> None:
    core = cores.take("frames", mode="threads", userland=userland)
    target = CoreFile(str(core.core), sysroot=str(core.sysroot) if core.sysroot else None)
    found = stacks_of(target)
    live = [stack for stack in found if stack.tid is not None]
    assert sorted(stack.tid or 0 for stack in live) == sorted(thread.tid for thread in target.threads())
    assert len(live) == 201
    for stack in live:
        assert stack.sp is not None
        assert stack.start <= stack.sp < stack.end
    sizes = {stack.end - stack.start for stack in live if stack.tid != core.pid}
    assert sizes == {131072 + 4096}  # with the guard page below
    facts = core.truth.facts
    told = {(facts[f"exited{n}"], facts[f"end{n}"]) for n in range(20)}
    exited = [stack for stack in found if stack.tid is None]
    assert {(stack.tcb, stack.end) for stack in exited} == told
    assert all(stack.sp is None and stack.end - stack.start >= 65536 for stack in exited)
    ranges = sorted((stack.start, stack.end) for stack in found)
    assert all(a[1] <= b[0] for a, b in zip(ranges, ranges[1:]))


def test_what_is_skipped_is_not_looked_through() -> None:
    core = cores.take("frames", mode="threads")
    target = CoreFile(str(core.core))
    everything = (0, 1 << 64)
    assert [s for s in stacks_of(target, [everything]) if s.tid is None] == []
    first = next(s for s in stacks_of(target) if s.tid is None)
    left = [s for s in stacks_of(target, [(first.start, first.end)]) if s.tid is None]
    assert len(left) == 19
    assert first not in left


def test_a_stack_that_the_program_allocated() -> None:
    core = cores.take("frames", mode="own-stack")
    target = CoreFile(str(core.core))
    (stack,) = [s for s in stacks_of(target) if s.tid not in (None, core.pid)]
    assert stack.tcb == core.truth.facts["pthread_self"]
    assert (stack.start, stack.end) == (core.truth.facts["stack"], core.truth.facts["stack_end"])
    (live,) = live_stacks(target, target.threads()[0])
    assert live.end == core.truth.facts["stack_end"]


def test_bounds_are_known_where_glibc_or_the_kernel_made_the_stack() -> None:
    """A thread of clone(2) is on a stack that only the program knows. Its mapping holds other memory as well."""
    core = cores.take("ownstacks", mode="main-fiber")
    target = CoreFile(str(core.core))
    (stack,) = stacks_of(target)
    assert not stack.known  # the main thread has switched to a static array
    (live,) = live_stacks(target, target.threads()[0])
    array = target.lookup("last")
    assert array is not None
    assert array.address < live.start < live.end <= array.address + array.size
    assert not live.known
    core = cores.take("frames", mode="own-stack")
    assert all(stack.known for stack in stacks_of(CoreFile(str(core.core))))


def test_words_that_look_like_bounds_are_not_those_of_the_first_stack(tmp_path: Path) -> None:
    program = compile_c(HERE / "process" / "likeblock.c", tmp_path / "likeblock")
    core = kernel_core(program, tmp_path)
    target = CoreFile(str(core))
    (thread,) = target.threads()
    (stack,) = stacks_of(target)
    assert stack_block(target, stack.tcb or 0) is not None
    assert (stack.start, stack.end) == first_stack(target)
    (live,) = live_stacks(target, thread)
    assert live.known
    assert live.start <= thread.registers["rsp"] < live.end
