from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import dmods.commands
from dmods import command


def run(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "dmods", "dmods", *words], check=True, capture_output=True, text=True
    ).stdout


def files() -> list[str]:
    folder = Path(dmods.commands.__file__).parent
    return sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))


def test_modules_are_the_files_of_the_commands() -> None:
    assert run().split() == [f"dmods.commands.{name}" for name in files()]


def test_commands_with_what_they_do() -> None:
    rows = json.loads(run("-l", "--json"))["tables"][0]["rows"]
    assert [row["command"] for row in rows] == files()
    lines = run("-l").splitlines()[1:]
    for row, line in zip(rows, lines):
        assert row["summary"] == command.find(row["command"]).summary
        assert line.endswith(row["summary"])


def test_every_command_names_itself_and_explains_itself() -> None:
    for name in files():
        found = command.find(name)
        assert found.name == name
        assert found.summary
        assert not found.summary.endswith(".")
        assert "\n" not in found.summary
        assert found.parser().format_help().startswith(f"usage: {name}")
