"""The man page has every command, verb and argument, and man's own tools can read it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dmods._engine import __version__
from dmods.cli.man import man_page, shell_verbs
from dmods.cli.reference import everything
from dmods.command import KERNEL, Argument, Command
from dmods.report import Report

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "dmods.1"


@pytest.fixture(scope="module")
def shown() -> str:
    """Return the page as a reader sees it."""
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-P-c", "-rLL=79n", PAGE], check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
    return re.sub(".\b", "", done.stdout)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == man_page(everything(), shell_verbs(), __version__), "run scripts/docs"


def test_the_program_prints_it() -> None:
    words = [sys.executable, "-m", "dmods", "help", "--man"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout == PAGE.read_text()


def test_lines_fit(shown: str) -> None:
    assert max(map(len, shown.splitlines())) <= 80


def section(shown: str, title: str) -> str:
    return re.split(r"^(?=\S)", shown.partition(f"\n{title}\n")[2], flags=re.MULTILINE)[0]


def test_every_command_with_its_arguments(shown: str) -> None:
    for title, kernel in (("COMMANDS FOR PROCESSES", False), ("COMMANDS FOR KERNELS", True)):
        text = section(shown, title)
        parts = dict(
            zip(re.findall(r"^   (\S+)$", text, re.MULTILINE), re.split(r"^   \S+$", text, flags=re.MULTILINE)[1:])
        )
        commands = {each.name: each for each in everything() if (KERNEL in each.requires) == kernel}
        assert parts.keys() == commands.keys()
        for name, command in commands.items():
            words = " ".join(parts[name].split())
            assert command.summary[1:].replace("`", "") in words
            for argument in command.arguments:
                for option in argument.names:
                    assert option in words or not option.startswith("-"), (name, option)
            for example, _shows in command.examples:
                assert " ".join(example.split()) in words


def test_every_verb(shown: str) -> None:
    text = section(shown, "OTHER COMMANDS")
    assert re.findall(r"^   (\S+)$", text, re.MULTILINE) == list(shell_verbs())
    for name in shell_verbs():
        assert f"dmods {name}" in section(shown, "SYNOPSIS")


def test_man_db_finds_its_name() -> None:
    """`apropos` and `whatis` index the NAME section."""
    assert shutil.which("lexgrog"), "apt-get install man-db"
    done = subprocess.run(["lexgrog", PAGE], check=True, capture_output=True, text=True)
    assert re.search(r'"dmods - mdb\'s memory commands .+"', done.stdout)


def test_what_troff_would_take_for_its_own() -> None:
    command = Command(
        "odd",
        "what it does",
        lambda _target, _args: Report(),
        description=".hidden at the start, a \\ and `--dash`:\n  one    an item\n         that goes on\nAfter it.",
        arguments=[Argument("--x-y", metavar="N", help="'quoted' at the start")],
        examples=[("odd 'a b'", ".dot")],
    )
    page = man_page([command], {}, "1")
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-P-c"], check=True, capture_output=True, text=True, input=page
    )
    assert done.stderr == ""
    text = re.sub(".\b", "", done.stdout)
    assert ".hidden at the start, a \\ and --dash:" in text
    assert re.search(r"^ +one +an item that goes on\n\n +After it\.$", text, re.MULTILINE)
    assert "--x-y N" in text
    assert "'quoted' at the start" in text
    assert re.search(r"odd 'a b'\s+\.dot", text)
