"""The width of gdb's tables: a terminal's, also with -batch, and no limit where a program or a file takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gdb.conftest import Gdb, gdb_environment
from tests.ptykit import on_terminal

COMMAND = "mdb maps -v"


def letters(text: str) -> list[str]:
    """Return what the cells consist of, in no order. A narrow table has no line for a cell without a value ("-")."""
    return sorted("".join(cell for cell in text.split() if cell != "-"))


@pytest.mark.quick("72")
@pytest.mark.parametrize("columns", [50, 72])
def test_batch_lays_out_for_the_terminal(gdb: Gdb, core: Path, place: Path, tmp_path: Path, columns: int) -> None:
    cut = "echo {cut}\\n"
    _, whole, _ = gdb("-x", "heapcmds.py", core, "-ex", cut, "-ex", COMMAND, "-ex", cut).stdout.split("{cut}\n")
    assert max(map(len, whole.splitlines())) > 72
    steps = [cut, COMMAND, cut, f"pipe {COMMAND} | cat", cut]
    words = ["gdb", "-batch", "-x", "heapcmds.py", str(core), *(word for step in steps for word in ("-ex", step))]
    status, lines = on_terminal(words, columns, gdb_environment(tmp_path), str(place))
    assert status == 0
    _, own, piped, _ = "\n".join(lines).split("{cut}\n")
    assert max(map(len, own.splitlines())) < columns
    assert letters(own) == letters(whole)
    assert piped.splitlines() == [line for line in whole.splitlines() if line]
