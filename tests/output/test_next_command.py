"""An answer names the next command as it is typed where the answer was asked for."""

from __future__ import annotations

import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmods.output import next_command
from dmods.output.next_command import NAME, as_typed, in_shell, typed_as
from fixtures import answers
from tests.corekit import Crash


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    (before,) = next_command._form
    yield
    typed_as(before)


def next_commands(printed: str) -> list[str]:
    """Return the commands that an answer names."""
    named = re.findall(r"type: ([^)\n]+)|more: ([^)\n]+)", printed)
    return [command for one, other in named for command in (one or other).split("; ")]


def test_the_shells_form_has_the_dump_and_the_options() -> None:
    args = Namespace(core="a core", process=None, exe="/bin/a b", sysroot=None, debuginfod=True)
    typed_as(lambda: in_shell(args))
    assert as_typed("findleaks -d --top 3") == "dmods findleaks 'a core' --exe '/bin/a b' --debuginfod -d --top 3"
    typed_as(lambda: in_shell(Namespace(core=None, process=12, exe=None, sysroot=None)))
    assert as_typed("suspects") == "dmods suspects -p 12"


def test_other_texts_stay_as_they_are() -> None:
    typed_as(lambda: f"dmods {NAME} core")
    assert as_typed("gcore 12") == "gcore 12"
    assert as_typed("read the code before the call") == "read the code before the call"


def test_the_commands_of_triage_can_be_pasted_into_a_shell(crashed: Crash, tmp_path: Path) -> None:
    """The shell stands in the folder where triage was typed."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    shutil.copy(crashed.core, folder / "core of it")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    asked = ("triage", "core of it", "--exe", crashed.program)
    commands = next_commands(answers.dmods(*asked, cwd=folder, env=environment).stdout)
    assert commands
    for command in commands:
        assert command.startswith("dmods ")
        done = answers.finished("sh", "-c", command, cwd=folder, env=environment)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout
