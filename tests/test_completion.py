"""`dmods complete`, as bash runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dmods.command
from dmods.completion import of_line

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("dmods findl", ["findleaks"]),
        ("dmods help findl", ["findleaks"]),
        ("dmods walk core leak", ["leak", "leakbuf"]),
        ("dmods walk 'a core' leakb", ["leakbuf"]),
        ("dmods findleaks core --fa", ["--fail-on-leak"]),
        ("dmods findleaks --sy", ["--sysroot"]),
        ("dmods findleaks 'co", []),  # files, which bash knows
        ("dmods run --au", []),
        ("dmods nonesuch --j", []),
        ("dmods", sorted([*dmods.command.names(), "complete", "gdb", "help", "link", "run"])),
    ],
)
def test_what_tab_offers(line: str, offered: list[str]) -> None:
    assert of_line(line) == offered


@pytest.mark.parametrize("name", dmods.command.names())
def test_every_option_of_every_command(name: str) -> None:
    sides = [dmods.command.load(module) for known, _side, module in dmods.command.modules() if known == name]
    known = {option for one in sides for action in one.parser()._actions for option in action.option_strings}
    assert {*of_line(f"dmods {name} core -")} == known - {"-h"} | {"--exe", "--sysroot"}


def test_in_bash(tmp_path: Path) -> None:
    """What ~/.bashrc is given, and what bash makes of it; only up to the cursor."""
    (tmp_path / "dmods").write_text(f'#!/bin/sh\nexec {sys.executable} -m dmods "$@"\n')
    (tmp_path / "dmods").chmod(0o755)
    script = (
        f'PATH={tmp_path}:$PATH; eval "$(dmods complete)"; complete -p dmods; '
        "export COMP_LINE='dmods mems vmcore' COMP_POINT=10; dmods complete dmods mems dmods"
    )
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "complete -o default -C 'dmods complete' dmods\nmemstat\n"
