"""Fixtures of the gdb tests: a small program, cores of it, and gdb run from outside as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

import pytest

from fixtures import answers, cores
from fixtures.answers import user_environment as gdb_environment
from fixtures.limits import HANG

__all__ = ("gdb_environment",)

ROOT = Path(__file__).resolve().parents[2]

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
char greeting[] = "hello from the data segment";
static char *volatile lost;
int main(int argc, char **argv) {
    lost = malloc(1000);
    strcpy(lost, "nobody points here");
    lost = NULL;
    puts("ready");
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "wait") == 0)
        pause();
    if (argc > 1 && strcmp(argv[1], "abort") == 0)
        abort();
    return 0;
}
"""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "prog.c").write_text(SOURCE)
    subprocess.run(["gcc", "-g", "-O1", "-o", "prog", "prog.c"], cwd=folder, check=True)
    return folder / "prog"


@contextmanager
def waiting(program: Path) -> Iterator[int]:
    """Yield the id of the program's process while it waits in pause()."""
    with subprocess.Popen([program, "wait"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        cores.wait_until_it_sleeps(process.pid)
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.fixture(scope="session")
def core(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return core.PID of the waiting program, taken by gdb's gcore."""
    folder = tmp_path_factory.mktemp("core")
    with waiting(program) as pid:
        made = folder / f"core.{pid}"
        subprocess.run(
            ["gdb", "-nx", "-batch", "-p", str(pid), "-ex", f"gcore {made}"],
            check=True,
            capture_output=True,
            timeout=HANG,
        )
    return made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return an empty folder with the launchers linked into it."""
    folder = tmp_path / "place"
    folder.mkdir()
    subprocess.run([ROOT / "scripts" / "link-launchers", folder], check=True, stdout=subprocess.DEVNULL)
    return folder


Gdb = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def gdb(place: Path, tmp_path: Path) -> Gdb:
    """Return a function: ``gdb("-x", "heapcmds.py", core)`` runs `gdb -batch -x heapcmds.py CORE` in ``place``.

    It runs without the developer's own init files, and with no terminal.
    """
    environment = gdb_environment(tmp_path)

    def run(*arguments: object, timeout: float = HANG, **more: str) -> subprocess.CompletedProcess[str]:
        environ = {**environment, **more}
        # gdb itself prints names as their bytes are.
        given = {"cwd": place, "env": environ, "timeout": timeout, "errors": "surrogateescape"}
        return answers.finished("gdb", "-batch", *arguments, **given)

    return run


def between_cuts(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """Return the JSON objects that gdb printed between one `echo {cut}` and the next."""
    parts = done.stdout.split("{cut}")
    assert len(parts) > 2, done.stderr
    return [json.loads(part) for part in parts[1:-1:2]]


@pytest.fixture(scope="session", autouse=True)
def _is_set_up() -> None:
    if not (ROOT / "dmods" / "_engine.abi3.so").exists():
        pytest.exit(f"the engine is not built: run {ROOT}/scripts/setup (python {sys.version_info[:2]})", returncode=2)
