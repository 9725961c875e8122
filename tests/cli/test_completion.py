"""`dmods complete`, as bash calls it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dmods.cli.completion import of_line
from dmods.command import command_modules, command_names, load_command

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("dmods findl", ["findleaks"]),
        ("dmods help findl", ["findleaks"]),
        ("dmods walk core leak", ["leak", "leakbuf"]),
        ("dmods walk 'a core' leakb", ["leakbuf"]),
        ("dmods findleaks core --fa", ["--fail-on-leak"]),
        ("dmods findleaks --sy", ["--sysroot"]),
        ("dmods findleaks 'co", []),  # bash itself completes files
        ("dmods run --au", []),
        ("dmods nonesuch --j", []),
        ("dmods", sorted([*command_names(), "cache", "complete", "drgn", "gdb", "help", "link", "mdb", "run"])),
    ],
)
def test_what_tab_offers(line: str, offered: list[str]) -> None:
    assert of_line(line) == offered


@pytest.mark.parametrize("name", command_names())
def test_every_option_of_every_command(name: str) -> None:
    sides = [load_command(module) for known, _side, module in command_modules() if known == name]
    known = {option for one in sides for action in one.parser()._actions for option in action.option_strings}
    assert {*of_line(f"dmods {name} core -")} == known - {"-h"} | {"--exe", "--sysroot", "--debuginfod", "-p", "--pid"}


def test_in_bash(tmp_path: Path) -> None:
    """The text for ~/.bashrc, and its completions in bash. Only the text up to the cursor counts."""
    (tmp_path / "dmods").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dmods "$@"\n')
    (tmp_path / "dmods").chmod(0o755)
    script = (
        f'PATH={tmp_path}:$PATH; eval "$(dmods complete)"; complete -p dmods; '
        "export COMP_LINE='dmods mems vmcore' COMP_POINT=10; dmods complete dmods mems dmods"
    )
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "complete -o default -C 'dmods complete' dmods\nmemstat\n"
