"""Processes that gdb holds: attached, run to the end, on a remote stub, several at once."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.corekit import HERE, compile_c
from tests.gdb.conftest import Gdb, between_cuts, waiting

JSON = ("-ex", "echo {cut}", "-ex", "mdb maps --json", "-ex", "echo {cut}")
STATE = "python import gdbext.session as s; t = s.current_target(); print('STATE', id(t), hash(t.state()))"


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    return between_cuts(done)[0]


def states(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    return [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("STATE ")]


def test_attached(gdb: Gdb, program: Path) -> None:
    with waiting(program) as pid:
        done = gdb("-x", "heapcmds.py", "-p", pid, *JSON)
    assert answer(done)["command"] == "maps"
    assert not [line for line in done.stderr.splitlines() if line.startswith("dmods: ")]


def test_mappings_and_memory_are_the_processs_own(gdb: Gdb, program: Path) -> None:
    """/proc/PID/maps and gdb's own memory reads are the oracles."""
    probe = (
        "python import gdb, gdbext.session as s; t = s.current_target(); i = gdb.selected_inferior();"
        "readable = [m.start for m in t.mappings() if m.dumped];"
        "print('MAPS', len(t.mappings()), all(m.start < m.end for m in t.mappings()));"
        "print('SAME', all(t.read(a, 64) == bytes(i.read_memory(a, 64)) for a in readable));"
        "print('THREAD', [(x.tid, x.registers['rip']) for x in t.threads()]);"
        "print('MODULES', [m.path for m in t.modules()])"
    )
    with waiting(program) as pid:
        done = gdb("-x", "heapcmds.py", "-p", pid, "-ex", probe, "-ex", 'printf "RIP %lu\\n", $rip')
        mappings = Path(f"/proc/{pid}/maps").read_text().splitlines()
    assert f"MAPS {len(mappings)} True" in done.stdout, done.stderr
    assert "SAME True" in done.stdout
    rip = re.search(r"RIP (\d+)", done.stdout)
    assert rip is not None
    assert f"THREAD [({pid}, {rip[1]})]" in done.stdout
    assert str(program) in done.stdout.partition("MODULES")[2]
    assert "libc.so.6" in done.stdout.partition("MODULES")[2]


def test_run_to_the_end(gdb: Gdb, program: Path) -> None:
    done = gdb("-x", "heapcmds.py", program, "-ex", "sysbp _exit", "-ex", "run", *JSON, "-ex", "bt")
    assert "exit_group" in done.stdout
    assert answer(done)["command"] == "maps"
    assert "main" in done.stdout.split("{cut}")[2]


def test_the_state_changes_when_the_process_does(gdb: Gdb, program: Path) -> None:
    commands = [
        "break main",
        "run",
        STATE,
        STATE,
        "stepi",
        STATE,
        "set var greeting[0] = 0",
        STATE,
        "call (int) getpid()",
        STATE,
    ]
    done = gdb("-x", "heapcmds.py", program, *(word for line in commands for word in ("-ex", line)))
    seen = states(done)
    assert len(seen) == 5, done.stderr
    assert len({target for target, _state in seen}) == 1
    assert seen[0] == seen[1]
    assert len({state for _target, state in seen[1:]}) == 4


def test_a_core_stays_the_same_target(gdb: Gdb, core: Path) -> None:
    done = gdb("-x", "heapcmds.py", core, "-ex", STATE, "-ex", "bt", "-ex", STATE)
    assert len(states(done)) == 2
    assert states(done)[0] == states(done)[1]


def test_run_again_is_another_target(gdb: Gdb, program: Path) -> None:
    commands = ["sysbp _exit", "run", STATE, "kill", "run", STATE]
    done = gdb("-x", "heapcmds.py", program, *(word for line in commands for word in ("-ex", line)))
    seen = states(done)
    assert len(seen) == 2, done.stderr
    assert seen[0][1] != seen[1][1]


def test_the_selected_inferior_counts(gdb: Gdb, program: Path, core: Path) -> None:
    """Inferior 1 is a core, inferior 2 a process, and inferior 3 is empty."""
    with waiting(program) as pid:
        commands = [
            STATE,
            "add-inferior -no-connection",
            "inferior 2",
            f"attach {pid}",
            STATE,
            "add-inferior -no-connection",
            "inferior 3",
            "mdb maps",
            "inferior 1",
            STATE,
        ]
        done = gdb("-x", "heapcmds.py", core, *(word for line in commands for word in ("-ex", line)))
    first, second, third = states(done)
    assert first[0] == third[0] != second[0]
    assert "neither a core nor a process" in done.stderr


def test_reading_threads_keeps_the_users_selection(gdb: Gdb, program: Path) -> None:
    done = gdb(
        "-x", "heapcmds.py", program, "-ex", "break malloc", "-ex", "run", "-ex", "up", "-ex", "frame",
        "-ex", "python import gdbext.session as s; print(len(s.current_target().threads()))", "-ex", "frame",
    )  # fmt: skip
    shown = [line for line in done.stdout.splitlines() if line.startswith("#1 ")]
    assert len(shown) == 3
    assert len(set(shown)) == 1


def test_on_a_remote_stub(gdb: Gdb, program: Path) -> None:
    done = gdb(
        "-x", "heapcmds.py", program, "-ex", f"target remote | gdbserver - {program}", "-ex", "break puts",
        "-ex", "continue", *JSON,
        "-ex", "python import gdbext.session as s; t = s.current_target(); print('LOCAL', t.local)",
        "-ex", "python print(t.read(t.evaluate('greeting'), 5))", "-ex", "kill",
    )  # fmt: skip
    assert answer(done)["command"] == "maps"
    assert "LOCAL False" in done.stdout
    assert "b'hello'" in done.stdout


@pytest.mark.parametrize("remote", [False, True])
def test_read_only_memory_of_a_process_holds_blocks(
    gdb: Gdb, remote: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live process's memory without any access is not searched (docs/LIMITS.md)."""
    program = compile_c(HERE / "readonly.c", tmp_path / "readonly")
    monkeypatch.chdir(tmp_path)
    with waiting(program) as pid:
        how = ["-ex", f"target remote | gdbserver --attach - {pid}"] if remote else ["-p", pid]
        done = gdb(*how, "-x", "heapcmds.py", "-ex", "echo {cut}", "-ex", "walk leak", "-ex", "echo {cut}")
        found = {int(word, 16) for word in done.stdout.split("{cut}")[1].split()}
    rows = [line.split() for line in (tmp_path / "truth").read_text().splitlines() if line != "told"]
    reported = [kind for kind, _size, hidden in rows if ~int(hidden) & (1 << 64) - 1 in found]
    assert reported == ["memfd-none", "lost"], done.stderr
