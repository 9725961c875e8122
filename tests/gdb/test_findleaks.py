"""`findleaks` in gdb, in every way. The program loses one buffer of malloc(1000), and no other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from fixtures import answers
from tests.gdb.conftest import Gdb, waiting

FIND = ("-ex", "echo {cut}", "-ex", "findleaks --json", "-ex", "echo {cut}")


def totals(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """Return the totals of each findleaks."""
    parts = done.stdout.split("{cut}")[1::2]
    assert parts, done.stderr
    return [json.loads(part)["totals"] for part in parts]


def assert_lost(done: subprocess.CompletedProcess[str], *expected: tuple[int, int]) -> None:
    """Check the (buffers, bytes) of each findleaks."""
    assert [(each["leaked_count"], each["leaked_bytes"]) for each in totals(done)] == list(expected), done.stderr


def test_a_core_alone(gdb: Gdb, core: Path) -> None:
    assert_lost(gdb("-x", "heapcmds.py", core, *FIND), (1, 1000))


def test_a_core_without_debug_files(gdb: Gdb, core: Path) -> None:
    assert_lost(gdb("-iex", "set debug-file-directory /nonexistent", "-x", "heapcmds.py", core, *FIND), (1, 1000))


def test_gdb_and_the_bare_core_agree(gdb: Gdb, core: Path) -> None:
    inside = gdb("-x", "heapcmds.py", core, *FIND).stdout.split("{cut}")[1]
    assert json.loads(inside) == answers.typed("findleaks", core)


def test_attached(gdb: Gdb, program: Path) -> None:
    with waiting(program) as pid:
        assert_lost(gdb("-x", "heapcmds.py", "-p", pid, *FIND), (1, 1000))


def test_at_the_end_of_a_run(gdb: Gdb, program: Path) -> None:
    assert_lost(gdb("-x", "heapcmds.py", program, "-ex", "sysbp _exit", "-ex", "run", *FIND), (1, 1000))


def test_on_a_remote_stub(gdb: Gdb, program: Path) -> None:
    remote = ("-ex", f"target remote | gdbserver - {program}", "-ex", "catch syscall exit_group", "-ex", "continue")
    assert_lost(gdb("-x", "heapcmds.py", program, *remote, *FIND, "-ex", "kill"), (1, 1000))


def test_it_looks_again_when_the_process_has_moved(gdb: Gdb, program: Path) -> None:
    """malloc(50) gives 56 bytes on every 64-bit glibc (MALLOC_ALIGNMENT 16, one word of overhead)."""
    lose = ("-ex", "call ((void *(*)(unsigned long)) malloc)(50)")
    done = gdb("-x", "heapcmds.py", program, "-ex", "sysbp _exit", "-ex", "run", *FIND, *lose, *FIND, *FIND)
    assert_lost(done, (1, 1000), (2, 1056), (2, 1056))
