"""Debian 13's gdb (16.3, with its own Python 3.13) gives the same answers as this machine's gdb and as no gdb."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fixtures import answers, cores, debuggers, userlands
from fixtures.limits import HANG
from tests.gdb.conftest import Gdb, between_cuts, gdb_environment, waiting

pytestmark = pytest.mark.thorough("it needs the gdb of Debian 13")

FIND = ("-ex", "echo {cut}", "-ex", "findleaks --json --indirect", "-ex", "echo {cut}")


@pytest.fixture
def other(place: Path, tmp_path: Path) -> Gdb:
    """Return the same function as ``gdb``, with trixie's gdb."""
    debugger = debuggers.gdb("trixie")

    def run(*arguments: object, timeout: float = HANG, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**gdb_environment(tmp_path), **debugger.env, **more}
        return answers.finished(*debugger.argv, "-batch", *arguments, cwd=place, env=environment, timeout=timeout)

    return run


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    (found,) = between_cuts(done)
    return found


def bare(core: Path, *arguments: str) -> Any:
    return answers.typed("findleaks", core, "--indirect", *arguments)


def test_it_is_another_python(other: Gdb, gdb: Gdb) -> None:
    asked = ("-ex", "python import sys; print(sys.version_info[:2])")
    assert other(*asked).stdout.strip() == "(3, 13)"
    assert gdb(*asked).stdout.strip() != "(3, 13)"


@pytest.mark.parametrize("program", ["graph", "cxx"])
def test_findleaks_says_the_same(other: Gdb, gdb: Gdb, program: str) -> None:
    made = cores.take(program)
    said = answer(other("-x", "heapcmds.py", made.core, *FIND))
    truth = made.truth
    direct = len(truth.addresses("direct")) + len(truth.cycles)
    totals = said["totals"]
    assert (totals["direct_count"], totals["indirect_count"]) == (direct, len(truth.leaked) - direct)
    assert said == answer(gdb("-x", "heapcmds.py", made.core, *FIND)) == bare(made.core)


def test_a_core_of_its_own_release(other: Gdb) -> None:
    """The files of the process lie in a root of their own."""
    made = cores.take("graph", userland="trixie")
    root = userlands.get("trixie").root
    said = answer(other("-iex", f"set sysroot {root}", "-x", "heapcmds.py", made.core, *FIND))
    assert said == bare(made.core, "--sysroot", str(root))
    assert said["totals"]["direct_count"] == len(made.truth.addresses("direct")) + len(made.truth.cycles)


def test_a_running_process(other: Gdb, program: Path) -> None:
    with waiting(program) as pid:
        totals = answer(other("-x", "heapcmds.py", "-p", pid, *FIND))["totals"]
    assert (totals["leaked_count"], totals["leaked_bytes"]) == (1, 1000)


def test_other_commands_say_the_same(other: Gdb, gdb: Gdb, core: Path) -> None:
    ask: list[object] = ["-x", "heapcmds.py", core]
    names = ("whatis $sp", "heapcheck", "heapsizes", "malloc_stats", "stacks", "findstack", "maps", "panicinfo")
    for name in names:
        ask += ["-ex", "echo {cut}", "-ex", f"mdb {name} --json"]
    said, expected = (run(*ask).stdout.split("{cut}")[1:] for run in (other, gdb))
    assert len(said) == len(names)
    assert [json.loads(one) for one in said] == [json.loads(one) for one in expected]
