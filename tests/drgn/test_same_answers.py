"""On a process's core every command answers in drgn what it answers without a debugger, to the letter."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Optional

import pytest

from dmods.cli.frontend import exit_status
from dmods.command import USERLAND, command_names, find_command
from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.output.json import write_error
from dmods.output.streaming import target_name
from fixtures import answers, cores
from fixtures.limits import HANG
from tests.corekit import Crash
from tests.drgn.conftest import Drgn

# Words behind the names of those that mean little without.
MORE = {
    "findleaks": ["", "-d", "-i", "--top 3"],
    "walk": ["", "leak", "leakbuf", "buf", "freebuf", "arena", "thread", "mapping"],
    "whatis": ["main", "malloc", "0x10"],
}
RUN = """
from drgn.commands import run_command
for number, line in enumerate({lines!r}):
    run_command(prog, line + " {extra} > {folder}/" + str(number))
"""


def lines() -> list[str]:
    """Every command that looks at a process, as JSON and a few as text."""
    names = [name for name in command_names() if USERLAND in find_command(name).requires]
    asked = [f"{name} {words}" for name in names for words in MORE.get(name, [""])]
    return [f"{line} --json" for line in asked] + ["findleaks", "stacks", "malloc_stats"]


def alone(target: CoreFile, line: str) -> str:
    try:
        return answers.text(target, *line.split())
    except UserError as error:
        said = StringIO()
        if "--json" in line:  # the error's text is on stderr
            write_error(error, line.split(maxsplit=1)[0], target_name(target), exit_status(error), said)
        return said.getvalue()


def without_advice(said: str) -> str:
    """Return the answer. Of an error the advice is left out: it has the options that only drgn's form takes."""
    if said.startswith("{") and "error" in (answer := json.loads(said)):
        return str({**answer, "error": answer["error"]["what"]})
    return said


def compare(drgn: Drgn, core: Path, folder: Path, sysroot: Optional[Path] = None) -> None:
    folder.mkdir()
    extra = f"--sysroot {sysroot}" if sysroot else ""
    done = drgn("-q", "-c", core, "-e", RUN.format(lines=lines(), folder=folder, extra=extra), timeout=HANG)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    # One for all, as drgn has it: what a command has found out shows in the next one's answer.
    target = CoreFile(str(core.resolve()), sysroot=str(sysroot) if sysroot else None)
    answered = 0
    for number, line in enumerate(lines()):
        said = (folder / str(number)).read_text()
        assert without_advice(said) == without_advice(alone(target, line)), line
        answered += bool(said)
    assert answered > len(lines()) / 2


@pytest.mark.quick("freed-gcore")
@pytest.mark.parametrize(("program", "how"), [("sizes", "kernel"), ("freed", "gcore"), ("cxx", "kernel")])
def test_fixtures(drgn: Drgn, tmp_path: Path, program: str, how: str) -> None:
    compare(drgn, cores.take(program, how).core, tmp_path / "said")


def test_a_broken_heap(drgn: Drgn, tmp_path: Path) -> None:
    compare(drgn, cores.take("corrupt", mode="overrun").core, tmp_path / "said")


@pytest.mark.thorough("it needs the bullseye userland")
def test_another_machines(drgn: Drgn, tmp_path: Path) -> None:
    """A core of bullseye's glibc, its files under --sysroot."""
    taken = cores.take("freed", userland="bullseye")
    compare(drgn, taken.core, tmp_path / "said", taken.sysroot)


def test_a_truncated_core(drgn: Drgn, tmp_path: Path, crashed: Crash) -> None:
    data = crashed.core.read_bytes()
    (tmp_path / "core").write_bytes(data[: len(data) // 2])
    compare(drgn, tmp_path / "core", tmp_path / "said")


def test_vector_registers_hold_blocks(drgn: Drgn) -> None:
    """drgn does not show them. dmods reads them from the core's notes."""
    made = cores.take("vectors")
    done = drgn("-q", "-c", made.core, "findleaks", "--json")
    assert json.loads(done.stdout)["totals"]["leaked_count"] == len(made.truth.leaked), done.stderr
