"""``panicinfo`` compared with what the program was about to do, and its instruction with gdb's disassembler."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from dmods import command
from dmods.corefile import CoreFile
from fixtures import cores
from tests import gdb_frames


@cache
def record(mode: str, variant: str = "dynamic") -> dict[str, Any]:
    panicinfo = command.find("panicinfo")
    target = CoreFile(str(cores.take("frames", mode=mode, variant=variant).core))
    (table,) = panicinfo.run(target, panicinfo.parser().parse_args([])).tables
    (row,) = table.rows
    return dict(zip((column.name for column in table.columns), row))


TRAPS = [
    ("null", "SIGSEGV SEGV_MAPERR", "the NULL page: NULL plus 0x18", "touch_null"),
    ("gp", "SIGSEGV SI_KERNEL", "not told by the processor", "touch_gp"),
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
    panicinfo = command.find("panicinfo")
    core = cores.take("shapes", how="gcore")
    (table,) = panicinfo.run(CoreFile(str(core.core)), panicinfo.parser().parse_args([])).tables
    (row,) = table.rows
    found = dict(zip((column.name for column in table.columns), row))
    assert (found["thread"], found["message"], found["signal"]) == (core.pid, "the process was alive", None)
