"""docs/COMMANDS.md agrees with the commands' own data."""

from __future__ import annotations

from pathlib import Path

from dmods.cli.reference import everything, page, usage
from dmods.command import Argument, Command
from dmods.report import Report

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "COMMANDS.md").read_text() == page(everything()), "run scripts/docs"


def test_usage_lines() -> None:
    assert usage(Argument("-d", "--details", action="store_true")) == "[-d]"
    assert usage(Argument("--top", metavar="N", type=int)) == "[--top N]"
    assert usage(Argument("-m", "--module")) == "[-m MODULE]"
    assert usage(Argument("what", nargs="?", metavar="ADDR")) == "[ADDR]"
    assert usage(Argument("name")) == "NAME"
    assert usage(Argument("name", nargs="+")) == "NAME ..."


def test_a_kernels_command_has_a_heading_of_its_own() -> None:
    sides = [
        Command("walk", "what it does", lambda _target, _args: Report(), requires=(side,))
        for side in ("userland", "kernel")
    ]
    text = page(sides)
    assert "| [`walk`](#walk) | what it does |\n| [`walk (kernel)`](#walk-kernel) | what it does |" in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## walk", "## walk (kernel)"]


def test_a_command_on_the_page() -> None:
    made = Command(
        "walkies",
        "what it does",
        lambda _target, _args: Report(),
        description="More of it.",
        arguments=[
            Argument("-v", action="store_true", help="say more"),
            Argument("-n", "--top", metavar="N", help="only N"),
            Argument("what", nargs="?", metavar="ADDR|NAME", help="this one"),
        ],
        examples=[("walkies -v", "all of it")],
    )
    text = page([made])
    assert "| [`walkies`](#walkies) | what it does |" in text
    assert text.partition("\n## ")[2].splitlines() == [
        "walkies",
        "",
        "    walkies [-v] [-n N] [ADDR|NAME]",
        "",
        "What it does.",
        "",
        "More of it.",
        "",
        "| argument | |",
        "|---|---|",
        "| `-v` | say more |",
        "| `-n N`, `--top N` | only N |",
        "| `ADDR\\|NAME` | this one |",
        "",
        "- `walkies -v`: all of it",
    ]
