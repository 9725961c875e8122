"""``panicinfo`` compared with what the program was about to do, and its instruction with gdb's disassembler."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.pointees import operands_of
from dmods.process.arch import AARCH64, I386, X86_64
from dmods.target import Arch, Target
from fixtures import answers, audited, cores
from tests import gdb_frames
from tests.auditkit import answer
from tests.corekit import HERE, compile_c, kernel_core


@cache
def record(mode: str, variant: str = "dynamic") -> dict[str, Any]:
    target = CoreFile(str(cores.take("frames", mode=mode, variant=variant).core))
    table = answers.report(target, "panicinfo").tables[0]
    assert table.name == "panicinfo"
    (row,) = table.rows
    return dict(zip((column.name for column in table.columns), row))


TRAPS = [
    ("null", "SIGSEGV SEGV_MAPERR", "the NULL page: NULL plus 0x18", "touch_null"),
    ("gp", "SIGSEGV SI_KERNEL", "the processor did not say", "touch_gp"),
    ("readonly", "SIGSEGV SEGV_ACCERR", "read-only memory", "touch_readonly"),
    ("bus", "SIGBUS BUS_ADRERR", "past the end of the mapped file", "touch_bus"),
    ("divide", "SIGFPE FPE_INTDIV", None, "divide"),
    ("illegal", "SIGILL ILL_ILLOPN", None, "run_illegal"),
]


@pytest.mark.parametrize(("mode", "signal", "what", "where"), TRAPS)
@pytest.mark.parametrize("variant", ["dynamic", "static"])
def test_a_trap_is_where_the_program_said(mode: str, signal: str, what: str, where: str, variant: str) -> None:
    core = cores.take("frames", mode=mode, variant=variant)
    found = record(mode, variant)
    assert (found["pc"], found["thread"], found["signal"]) == (core.truth.facts["pc"], core.pid, signal)
    assert found.get("address") == core.truth.facts.get("address")
    assert found["where"].partition("+")[0] == where
    assert found["message"].startswith(signal)
    assert str(found.get("what", None)).startswith(str(what))


@pytest.mark.quick("null", "gp", "raise")
@pytest.mark.parametrize("mode", [trap[0] for trap in TRAPS] + ["raise", "assert", "overflow"])
def test_the_instruction_is_what_gdb_says(mode: str) -> None:
    _threads, asm = gdb_frames.threads_of(cores.take("frames", mode=mode), limit=1)
    assert " ".join(asm.split()) == record(mode)["instruction"]


@pytest.mark.parametrize("mode", ["handler", "altstack", "bare", "nested"])
def test_a_handler_does_not_hide_the_trap(mode: str) -> None:
    core = cores.take("frames", mode=mode)
    found = record(mode)
    facts = core.truth.facts
    assert (found["pc"], found["rsp"], found["rbx"], found["address"]) == (
        facts["pc"],
        facts["sp"],
        facts["rbx"],
        facts["address"],
    )
    assert found["signal"] == "SIGSEGV SEGV_MAPERR"
    assert found["ended_by"] == ("SIGSEGV SEGV_MAPERR" if mode == "nested" else "SIGABRT SI_TKILL")
    ended = "SIGSEGV SEGV_MAPERR at 0x20" if mode == "nested" else "SIGABRT SI_TKILL, sent by the process itself"
    assert found["message"] == f"SIGSEGV SEGV_MAPERR at 0x18; ended by {ended}, in its handler"
    assert found["where"].partition("+")[0] == "touch_null"
    assert found["instruction"] == "movl $0x1,(%rax)"


def test_a_jump_to_nowhere_is_called_that() -> None:
    assert record("call")["what"] == "the pc itself: a jump to NULL"
    assert (record("call")["pc"], record("call")["instruction"]) == (0, None)
    assert record("exec")["what"].startswith("the pc itself: a jump to memory that is not executable")
    assert record("exec")["where"] == "readonly"


@pytest.mark.parametrize("mode", ["overflow", "thread-overflow", "overflow-handler"])
def test_a_stack_overflow_is_called_that(mode: str) -> None:
    found = record(mode)
    assert found["what"].startswith(f"below the stack of thread {found['thread']}: a stack overflow, 8")
    assert found["where"].partition("+")[0] == "overflow"
    assert ("ended_by" in found) == (mode == "overflow-handler")


def test_glibc_s_last_words_are_there() -> None:
    assert record("assert")["abort_message"].endswith("Assertion `sink == 42' failed.")
    assert "abort_message" not in record("raise")


def test_the_thread_that_raised_is_named() -> None:
    core = cores.take("frames", mode="raise")
    assert record("raise")["thread"] not in (None, core.pid)
    assert record("raise")["message"] == "SIGABRT SI_TKILL, sent by the process itself"


def test_a_living_process_has_not_died() -> None:
    core = cores.take("shapes", how="gcore")
    table = answers.report(CoreFile(str(core.core)), "panicinfo").tables[0]
    (row,) = table.rows
    found = dict(zip((column.name for column in table.columns), row))
    assert (found["thread"], found["message"], found["signal"]) == (core.pid, "the process was alive", None)


# -- what the registers point to, and the stack -----------------------------------------------------------------------

Died = tuple[CoreFile, dict[str, int]]
NOT_CANONICAL, NOT_MAPPED = "0x5a5a5a5a5a5a5a5a", "0x10000000000"


@pytest.fixture(scope="module")
def pointees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(HERE / "pointees.c", tmp_path_factory.mktemp("pointees") / "pointees", "-pthread")


def died(program: Path, where: Path, options: str, *words: str) -> Died:
    core = kernel_core(program, where, *words, env=audited.environment(options) if options else None)
    truth = (line.split() for line in (where / "truth").read_text().splitlines())
    return CoreFile(str(core)), {name: int(value) for name, value in truth}


def pointed_to(target: CoreFile) -> dict[str, dict[str, Any]]:
    """Return the row of each register."""
    rows = answer(target, "panicinfo")["tables"]["registers"]
    return {name: row for row in rows for name in row["registers"]}


def test_registers_that_point_into_blocks_say_who_had_them(pointees: Path, tmp_path: Path) -> None:
    target, truth = died(pointees, tmp_path, "audit,log=1000", NOT_CANONICAL, "requested")
    rows = pointed_to(target)
    freed, live, past = rows["rbx"], rows["rsi"], rows["rdi"]
    assert (freed["kind"], freed["block"], freed["requested"]) == ("freed block", hex(truth["freed"]), 64)
    assert freed["sentence"].partition(" -> ")[2].startswith("freed block of 64 bytes, freed by free_it+0x")
    assert any(frame["name"].startswith("free_it+") for frame in freed["stack"])
    assert (live["kind"], live["block"], live["offset"], live["requested"]) == ("block", hex(truth["live"]), 8, 100)
    assert "0x8 bytes into a live block of 100 bytes, allocated by allocate_live+0x" in live["sentence"]
    assert (past["kind"], past["block"], past["offset"]) == ("past the end", hex(truth["live"]), 100)
    assert "just past the end of a live block of 100 bytes, allocated by allocate_live+0x" in past["sentence"]


def test_without_records_the_allocator_knows_the_blocks(pointees: Path, tmp_path: Path) -> None:
    target, truth = died(pointees, tmp_path, "", NOT_MAPPED)
    rows = pointed_to(target)
    assert (rows["rbx"]["kind"], rows["rbx"]["block"]) == ("freed block", hex(truth["freed"]))
    assert rows["rbx"]["caller"] is None
    assert "in the tcache of thread" in rows["rbx"]["sentence"]
    assert rows["rsi"]["sentence"].endswith(f"0x8 bytes into a live block of {truth['usable']} bytes")
    assert rows["rdi"]["kind"] == "past the end"
    assert (rows["rdi"]["block"], rows["rdi"]["offset"]) == (hex(truth["live"]), truth["usable"])
    assert rows["rax"]["kind"] == "unmapped"


def test_operands_come_first_and_numbers_are_left_out(pointees: Path, tmp_path: Path) -> None:
    target, truth = died(pointees, tmp_path, "", NOT_CANONICAL)
    rows = answer(target, "panicinfo")["tables"]["registers"]
    assert [row["operand"] for row in rows] == sorted((row["operand"] for row in rows), reverse=True)
    assert [row["kind"] for row in rows if row["operand"]] == ["non-canonical", "freed block"]
    assert "rax" in rows[0]["registers"]
    assert "0x5a5a5a5a5a5a5a5a is not a canonical address" in rows[0]["sentence"]
    named = {name for row in rows for name in row["registers"]}
    assert not named & {"rdx", "r10", "r11", "rip", "fs_base", "eflags", "cs"}  # 7, 0, 0 and no pointers
    assert {"r8", "r9"} <= named
    assert pointed_to(target)["r8"]["kind"] == "stack"
    guard = pointed_to(target)["r9"]
    assert (guard["value"], guard["kind"]) == (hex(truth["guard"]), "guard page")


def test_null_and_what_lies_near_it_are_told_of_operands() -> None:
    for mode, kind in (("null", "null"), ("gp", "non-canonical")):
        target = CoreFile(str(cores.take("frames", mode=mode).core))
        first = answer(target, "panicinfo")["tables"]["registers"][0]
        assert (first["operand"], first["kind"]) == (True, kind)
    divide = CoreFile(str(cores.take("frames", mode="divide").core))
    assert "rdx" not in pointed_to(divide)  # a number, whatever it is


def test_the_stack_is_the_one_that_findstack_prints() -> None:
    target = CoreFile(str(cores.take("frames", mode="handler").core))
    expected = answers.text(target, "findstack")
    assert "interrupted by SIGSEGV" in expected
    assert answers.text(target, "panicinfo").endswith("\n" + expected)


@pytest.mark.parametrize(
    ("arch", "instruction", "memory", "plain"),
    [
        (X86_64, "movl $0x1,0x18(%rax)", ["rax"], []),
        (X86_64, "mov %ecx,-0x8(%rbp,%r9,4)", ["rbp", "r9"], ["rcx"]),
        (X86_64, "movb %sil,(%r10)", ["r10"], ["rsi"]),
        (X86_64, "mov %ah,%r8b", [], ["rax", "r8"]),
        (X86_64, "call *%rdx", ["rsp"], ["rdx"]),
        (X86_64, "rep movsb %ds:(%rsi),%es:(%rdi)", ["rsi", "rdi"], ["ds", "es"]),
        (X86_64, "movaps %xmm0,(%rdi)", ["rdi"], []),
        (X86_64, "", [], []),
        (I386, "movw %cx,(%eax)", ["eax"], ["ecx"]),
        (I386, "push %bp", ["esp"], ["ebp"]),
        (AARCH64, "ldr w0, [x1, x2]", ["x1", "x2"], ["x0"]),
        (AARCH64, "str x3, [sp, #0x10]", ["sp"], ["x3"]),
    ],
)
def test_the_registers_of_an_instruction(arch: Arch, instruction: str, memory: list[str], plain: list[str]) -> None:
    target = cast(Target, SimpleNamespace(arch=arch))
    assert operands_of(target, instruction) == (memory, plain)
