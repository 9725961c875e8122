from __future__ import annotations

from pathlib import Path

import dmods.commands
import drgnext.commands
from dmods.command import load_command
from fixtures import answers


def run(*words: str) -> str:
    return answers.printed("dmods", *words)


def files() -> list[tuple[str, str]]:
    """Return (name, module) of each file, by name."""
    found = []
    for package in (dmods.commands, drgnext.commands):
        names = [path.stem for path in Path(package.__path__[0]).glob("*.py") if not path.stem.startswith("_")]
        assert names
        found += [(name, f"{package.__name__}.{name}") for name in names]
    return sorted(found)


def test_modules_are_the_files_of_the_commands() -> None:
    assert sorted(run().split()) == sorted(module for _name, module in files())


def test_commands_with_what_they_do() -> None:
    rows = answers.typed("dmods", "-l")["tables"][0]["rows"]
    assert sorted((row["command"], row["module"]) for row in rows) == files()
    lines = run("-l").splitlines()[1:]
    for row, line in zip(rows, lines):
        assert row["summary"] == load_command(row["module"]).summary
        assert line.endswith(row["summary"])


def test_every_command_names_itself_and_explains_itself() -> None:
    for name, module in files():
        found = load_command(module)
        assert found.name == name
        assert found.summary
        assert not found.summary.endswith(".")
        assert "\n" not in found.summary
        assert found.parser().format_help().startswith(f"usage: {name}")
