"""Frames, compared with what the program itself said (return addresses, CFAs) and with gdb's on the same core."""

from __future__ import annotations

import random
import time
from functools import cache
from pathlib import Path

import pytest

from dmods.base.ranges import Ranges
from dmods.command import find_command
from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.heap.heap import find_heap
from dmods.heap.roots import live_memory
from dmods.modules import elf
from dmods.process import signals
from dmods.process.threads import find_thread, live_stacks, stack_of, stacks_of
from dmods.process.unwind import describe, original_trap, traps, unwind, walk
from fixtures import cores
from fixtures.cores import CoreSet
from fixtures.limits import HANG_CPU
from fixtures.programs import PROGRAMS
from tests import gdb_frames, quick

MODES = PROGRAMS["frames"].modes
# Modes in which unwinding must guess. gdb guesses otherwise, or stops.
GUESSES = {"call": "bad jump", "exec": "bad jump", "jit": "frame pointer", "bare": "scan"}
VARIANTS = ("no-pie", "static", "static-pie", "stripped")
HANDLED = ("handler", "altstack", "nested", "bare", "overflow-handler")

CASES = [(mode, "dynamic") for mode in MODES] + [
    (mode, v) for v in VARIANTS for mode in ("null", "handler", "altstack")
]


@cache
def opened(mode: str, variant: str = "dynamic", userland: str = "host") -> tuple[CoreSet, CoreFile]:
    core = cores.take("frames", mode=mode, variant=variant, userland=userland)
    return core, CoreFile(str(core.core), sysroot=str(core.sysroot) if core.sysroot else None)


@pytest.mark.parametrize(("mode", "variant"), CASES)
def test_frames_are_those_that_the_program_told_of(mode: str, variant: str) -> None:
    core, target = opened(mode, variant)
    # The main thread wrote the truth. In a mode with other threads, one of them died.
    main = next(thread for thread in target.threads() if thread.tid == core.pid)
    stack = walk(target, main, 100_000)
    told = [(core.truth.facts[f"return{n}"], core.truth.facts[f"cfa{n}"]) for n in (3, 2, 1)]
    found = [(frame.pc, frame.sp) for frame in stack.frames]
    assert told[0] in found
    at = found.index(told[0])
    assert found[at : at + 3] == told
    assert stack.end == "outermost"
    assert {frame.found_by for frame in stack.frames} - {"thread", "cfi", "signal"} == {GUESSES.get(mode)} - {None}


@pytest.mark.quick(
    "threads-dynamic", "raise-dynamic", "own-stack-dynamic", "handler-stripped", "null-static-pie", "handler-static-pie"
)
@pytest.mark.parametrize(("mode", "variant"), [case for case in CASES if case[0] not in GUESSES])
def test_frames_are_those_that_gdb_finds(mode: str, variant: str) -> None:
    core, target = opened(mode, variant)
    known, _instruction = gdb_frames.threads_of(core)
    found = {
        thread.tid: [(f.pc, f.sp, f.trampoline) for f in unwind(target, thread, 300)] for thread in target.threads()
    }
    assert found == known
    assert len(found) == (201 if mode == "threads" else 2 if mode in ("raise", "own-stack", "thread-overflow") else 1)


@pytest.mark.parametrize(("mode", "variant"), [case for case in CASES if case[0] in HANDLED])
def test_behind_a_handler_the_frame_is_what_the_handler_was_shown(mode: str, variant: str) -> None:
    core, target = opened(mode, variant)
    facts = core.truth.facts
    frames = unwind(target, target.threads()[0])
    (trap,) = traps(target, frames)
    assert (trap.frame.pc, trap.frame.sp, trap.frame.registers["rbx"]) == (facts["pc"], facts["sp"], facts["rbx"])
    assert trap.frame.exact
    assert trap.signal is not None
    assert (trap.signal.number, trap.signal.address) == (signals.SIGSEGV, facts["address"])
    assert original_trap(target, frames) == trap
    trampoline = frames[frames.index(trap.frame) - 1]
    assert (trampoline.pc, trampoline.sp, trampoline.trampoline) == (facts["return9"], facts["cfa9"], True)


@pytest.mark.parametrize("mode", ["handler", "altstack"])
def test_the_trap_is_found_where_no_file_of_the_process_is(mode: str, tmp_path: Path) -> None:
    core = cores.take("frames", mode=mode)
    target = CoreFile(str(core.core), sysroot=str(tmp_path))
    assert not any(module.file for module in target.modules())
    (trap,) = traps(target, unwind(target, target.threads()[0]))
    assert (trap.frame.pc, trap.frame.sp) == (core.truth.facts["pc"], core.truth.facts["sp"])


def test_without_a_handler_there_is_no_trap_frame() -> None:
    _core, target = opened("null")
    assert original_trap(target, unwind(target, target.threads()[0])) is None


@pytest.mark.parametrize("variant", ["dynamic", "stripped", "static"])
def test_a_return_address_past_the_end_of_its_function_is_named_by_the_call(variant: str) -> None:
    _core, target = opened("noreturn", variant)
    names = [describe(target, frame).partition("+")[0] for frame in unwind(target, target.threads()[0])]
    if variant == "stripped":
        assert "ends_in_a_call" not in names
    else:
        assert names[names.index("ends_in_a_call") + 1].startswith("inner")
        assert names[-1] == "_start"


def test_a_handler_on_an_alternate_stack_leaves_two_live_stacks() -> None:
    core, target = opened("altstack")
    thread = target.threads()[0]
    alternate, own = live_stacks(target, thread)
    start = core.truth.facts["alternate"]
    assert (alternate.start, alternate.end) == (thread.registers["rsp"], start + 65536)
    assert start <= alternate.start < alternate.end
    assert own.start == core.truth.facts["sp"] - 128
    assert own.end > core.truth.facts["cfa1"]


def test_roots_on_stacks_are_those_of_both_live_stacks() -> None:
    """The stack that a thread left for a handler on another one may hold an object that the thread is about to free."""
    _core, target = opened("altstack")
    alternate, own = live_stacks(target, target.threads()[0])
    on_stacks = Ranges(live_memory.live_stacks(target, find_heap(target).roots))
    assert alternate.start in on_stacks
    assert own.start in on_stacks
    assert own.end - 8 in on_stacks


@pytest.mark.parametrize(("mode", "threads"), [("handler", 1), ("null", 1), ("raise", 2), ("own-stack", 2)])
def test_a_thread_on_its_own_stack_has_one_live_stack(mode: str, threads: int) -> None:
    _core, target = opened(mode)
    assert len(target.threads()) == threads
    for thread in target.threads():
        (live,) = live_stacks(target, thread)
        assert live.start == thread.registers["rsp"]


def test_unwinding_two_hundred_threads_takes_a_moment() -> None:
    _core, target = opened("threads")
    unwind(target, target.threads()[0])
    start = time.process_time()
    count = sum(len(unwind(target, thread)) for _ in range(10) for thread in target.threads())
    assert count > 10 * 200 * 4
    # 2,000 threads take about a second.
    assert time.process_time() - start < HANG_CPU


@pytest.mark.parametrize("mode", quick.only(["handler"], ["handler", "altstack", "threads"]))
def test_damage_costs_frames_but_no_error(mode: str, tmp_path: Path) -> None:
    """Bytes of the dump outside its headers are changed at random: stacks, the vdso's tables, struct pthread."""
    core, _target = opened(mode)
    whole = core.core.read_bytes()
    # The damage is behind the notes. With many threads those take hundreds of kilobytes.
    memory = min(
        load.offset for load in elf.parse(lambda at, size: whole[at : at + size], "core").loads() if load.filesz
    )
    generator = random.Random(mode)
    runs = [(name, find_command(name)) for name in ("findstack", "stacks", "panicinfo")]
    for _round in range(5):
        data = bytearray(whole)
        for _ in range(len(data) // 300):
            data[generator.randrange(memory, len(data))] = generator.randrange(256)
        damaged = tmp_path / "core"
        damaged.write_bytes(data)
        target = CoreFile(str(damaged))
        for name, found in runs:
            report = found.run(target, found.parser().parse_args([]))
            assert report.tables, name
        assert len([s for s in stacks_of(target) if s.sp is not None]) == len(target.threads())
        for thread in target.threads():
            assert unwind(target, thread)[0].pc == thread.registers["rip"]
            assert all(live.start < live.end for live in live_stacks(target, thread))


def test_an_outermost_frame_that_lies_nowhere_does_not_hide_the_stack(tmp_path: Path) -> None:
    """The stack pointer that the kernel saved in the signal frame is damaged."""
    core, target = opened("handler")
    thread = target.threads()[0]
    (saved,) = (frame.ucontext for frame in unwind(target, thread) if frame.ucontext is not None)
    rsp = saved + 40 + 15 * 8  # uc_mcontext.gregs[REG_RSP]
    data = bytearray(core.core.read_bytes())
    loads = elf.parse(lambda at, size: bytes(data[at : at + size]), "core").loads()
    (offset,) = (load.offset + rsp - load.vaddr for load in loads if load.vaddr <= rsp < load.vaddr + load.filesz)
    assert int.from_bytes(data[offset : offset + 8], "little") == core.truth.facts["sp"]
    data[offset : offset + 8] = (target.mappings()[0].start - 0x10000).to_bytes(8, "little")
    damaged = tmp_path / "core"
    damaged.write_bytes(data)
    found = stack_of(CoreFile(str(damaged)), thread)
    whole = stack_of(target, thread)
    assert found is not None
    assert whole is not None
    assert (found.start, found.end) == (whole.start, whole.end)


def test_the_limit_is_said() -> None:
    _core, target = opened("overflow")
    stack = walk(target, target.threads()[0], 10)
    assert (len(stack.frames), stack.end) == (10, "limit")


def test_threads_are_found_by_tid_pthread_t_and_name() -> None:
    core, target = opened("raise")
    by_tid = find_thread(target, str(target.threads()[0].tid))
    assert by_tid == find_thread(target, None) == find_thread(target, hex(core.truth.facts["pthread_self"]))
    with pytest.raises(UserError, match="there is no thread 'nobody'"):
        find_thread(target, "nobody")
