"""On a terminal of 80 columns no line is longer and no text is lost. Piped output does not depend on the terminal."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from dmods.output.layout import Plan, cells_in_lines, paragraph, wrap
from dmods.report import Column
from tests.output.everything import Line, kernel_lines, kernel_written, process_lines, written
from tests.ptykit import on_terminal

ROOT = Path(__file__).resolve().parents[2]
DRGN = Path(sys.executable).with_name("drgn")
OUTSIDE = ["maps -v", "whatis main", "findleaks -d", "stacks", "dmods -l", "nonesuch", "--help"]
OUTSIDE += ["help findleaks", "run --help", "gdb --help", "link --help"]
NONSENSE = "mdb whatis nosuch_symbol_anywhere + 0x1234567890abcdef and more words"
_ESCAPES = re.compile(r"\x1b\[\d+m")


def too_long(lines: list[str], columns: int) -> list[str]:
    """Return the lines that are too long and could have been broken."""
    return [
        line for line in lines if len(line) > columns and len(re.split(r"[\s/,`<>()]|::", line.strip("/,`<>():"))) > 1
    ]


@pytest.mark.quick("80")
@pytest.mark.parametrize("columns", [60, 80, 100])
def test_every_command_fits(columns: int) -> None:
    for line in process_lines():
        shown = _ESCAPES.sub("", written(line, False, columns))
        assert too_long(shown.splitlines(), columns) == [], line


def test_no_text_is_lost() -> None:
    """Every character of the piped output is on the terminal as well. A dash stands for an absent value."""
    for line in process_lines():
        if line.name in ("doctor",) or "-v" in line.words:  # these show times
            continue
        piped, shown = written(line, False), _ESCAPES.sub("", written(line, False, 80))
        lost = Counter(re.sub(r"[\s-]", "", piped)) - Counter(re.sub(r"[\s-]", "", shown))
        assert not lost, (line, lost)


@pytest.mark.parametrize("words", OUTSIDE)
def test_from_outside(words: str) -> None:
    core = next(line.core for line in process_lines() if line.name == "findleaks")
    name, *rest = words.split()
    given = [] if name in ("help", "run", "gdb", "link", "dmods") or name.startswith("-") else [core]
    status, lines = on_terminal([sys.executable, "-m", "dmods", name, *given, *rest])
    assert status == (2 if name == "nonesuch" else 0)
    assert too_long(lines, 80) == []
    assert len(lines) > 1


@pytest.mark.quick("80")
@pytest.mark.parametrize("columns", [80, 132])
def test_in_gdb(columns: int) -> None:
    core = next(line.core for line in process_lines() if line.name == "findleaks")
    names = ["maps -v", "mdb whatis main", "findleaks -d", "stacks", NONSENSE]
    steps = [word for name in names for word in ("-ex", name)]
    quiet = ["-ex", "set pagination off", "-ex", "set confirm off"]
    command = ["gdb", "-nx", "-q", "-x", str(ROOT / "heapcmds.py"), core, *quiet]
    _status, lines = on_terminal([*command, "-ex", "echo [begin]\\n", *steps, "-ex", "quit"], columns)
    ours = lines[lines.index("[begin]") + 1 :]
    assert too_long(ours, columns) == []
    assert any("/" in line for line in ours)
    assert any("pointed to by" in line for line in ours)


def test_what_gdb_pipes_is_not_broken() -> None:
    core = next(line.core for line in process_lines() if line.name == "findleaks")
    command = ["gdb", "-nx", "-q", "-x", str(ROOT / "heapcmds.py"), core, "-ex", "pipe maps -v | cat", "-ex", "quit"]
    _status, lines = on_terminal(command)
    piped = written(Line("maps", core, ("-v",)), False).splitlines()
    # gdb names the program itself, from the same build-id.
    assert [line.rpartition("/")[2] for line in piped if "/" in line]
    for line in piped:
        assert any(shown == line for shown in lines), line


@pytest.mark.parametrize("columns", [80])
def test_kernel_commands_fit(columns: int) -> None:
    for line in kernel_lines():
        shown = _ESCAPES.sub("", kernel_written(line, False, columns))
        assert too_long(shown.splitlines(), columns) == [], line


def test_wrap() -> None:
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("/a/long/path/to/it", 8) == ["/a/long/", "path/to/", "it"]
    assert wrap("std::vector<int>::at", 12) == ["std::vector<", "int>::at"]
    assert wrap("indivisible", 5) == ["indivisible"]
    assert wrap("two  spaces stay", 40) == ["two  spaces stay"]


def test_a_paragraph_hangs() -> None:
    assert paragraph("note: one two three", 12, 6) == "note: one\n      two\n      three"
    assert paragraph("   indented text", 14) == "   indented\n       text"
    assert paragraph("as it is", None) == "as it is"


def test_cells_stay_whole_where_they_can() -> None:
    assert cells_in_lines(["0x1000", "main+0x12", "(a note)"], 20) == ["0x1000 main+0x12", "    (a note)"]


def test_mdbs_columns_keep_their_places() -> None:
    """The first columns keep the places that they have on a wide terminal. The others go below."""
    placed = (Column("cache", width=16), Column("leaked", "count", width=7), Column("bufctl", "address", width=17))
    columns = (*placed, Column("caller"), Column("keeps"))
    plan = Plan.make(columns, [16, 7, 17, 60, 40], 80)
    cells = ("malloc-1032", "1", "00007f3a1c0025c0", "a" * 20 + "::" + "b" * 30, "12 buffers")
    first, second, third = plan.row(cells)
    assert first == f"{'malloc-1032':16} {'1':>7} {'00007f3a1c0025c0':>17} {'a' * 20}::"
    assert second == " " * 43 + "b" * 30
    assert third.strip() == "12 buffers"
