"""The libumem tutorial's session in gdb: `findleaks`, then `bufctl_audit` for each leak. Also on a live process."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import audited, cores
from tests.auditkit import answer, text
from tests.gdb.conftest import Gdb


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audited.tutorial(tmp_path_factory.mktemp("tutorial"))


def test_the_session_reads_as_without_gdb(gdb: Gdb, tutorial: Path) -> None:
    bare = CoreFile(str(tutorial))
    bufctls = [row["bufctl"] for row in answer(bare, "findleaks")["tables"]["leaks"]]
    assert len(bufctls) == 3
    lines = [word for bufctl in bufctls for word in ("-ex", f"bufctl_audit {bufctl}")]
    done = gdb("-x", "heapcmds.py", tutorial, "-ex", "echo {cut}", "-ex", "findleaks", *lines)
    expected = text(bare, "findleaks") + "".join(text(bare, "bufctl_audit", bufctl) for bufctl in bufctls)
    assert done.stdout.partition("{cut}")[2] == expected, done.stderr
    frames = ["buf_create", *(f"nested_leak{part}" for part in ("_l3", "_l2", "_l1", "")), "main"]
    assert re.search("\n".join(rf" {{17}}{name}\+0x[0-9a-f]+(  \[.*\])?" for name in frames), expected)


def test_a_gdb_expression_names_a_function(gdb: Gdb, tutorial: Path) -> None:
    done = gdb("-x", "heapcmds.py", tutorial, "-ex", "echo {cut}", "-ex", "findleaks nested_leak_l2")
    listing = done.stdout.partition("{cut}")[2]
    assert "buf_create+0x" in listing
    assert "func_leak" not in listing


def test_a_process_that_gdb_holds(gdb: Gdb, tutorial: Path) -> None:
    """In a process that gdb attached to, the auditor's records are the same as in its core."""
    program = tutorial.with_name("tutorial")
    environment = audited.environment("audit")
    argv = ["env", *(f"{name}={value}" for name, value in environment.items()), str(program)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            cores.wait_until_it_sleeps(process.pid)
            done = gdb(
                "-x", "heapcmds.py", "-p", process.pid, "-ex", "echo {cut}", "-ex", "findleaks", "-ex", "umausers"
            )
        finally:
            process.kill()
    shown = done.stdout.partition("{cut}")[2]
    callers = re.findall(r"^malloc-1032 +1 +[0-9a-f]{16} (\w+)\+0x", shown, re.MULTILINE)
    assert callers == ["buf_create", "func_leak", "main"], done.stderr
    assert "1024 bytes for 1 allocations with data size 1024:" in shown
