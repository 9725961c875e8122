"""The table of gdb's help texts: it must be what the commands say, and gdb must do without it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dmods.command import USERLAND, command_modules, find_command
from fixtures import _cache
from gdbext import help_texts
from tests.gdb.conftest import Gdb


def test_the_table_is_what_the_commands_say() -> None:
    texts = help_texts.known_texts()
    assert {*texts} == {name for name, side, _module in command_modules() if side == USERLAND}
    old = [name for name, text in texts.items() if text != help_texts.help_text(find_command(name))]
    assert old == [], "run scripts/docs"


@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_text_does_not_depend_on_the_terminal(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = help_texts.help_text(find_command("findleaks"))
    assert text == help_texts.known_texts()["findleaks"]
    assert max(map(len, text.split("\n"))) <= 80


@pytest.mark.quick("None", "{")
@pytest.mark.parametrize("content", [None, "", "{", "{}", "\xff"])
def test_gdb_asks_the_commands_where_there_is_no_table(gdb: Gdb, place: Path, content: str | None) -> None:
    copy = place / "copy"
    copy.mkdir()
    for name in ("dmods", "drgnext", ".venv"):
        (copy / name).symlink_to(_cache.ROOT / name)
    shutil.copytree(_cache.ROOT / "gdbext", copy / "gdbext", ignore=shutil.ignore_patterns("__pycache__"))
    table = copy / "gdbext/help.json"
    table.unlink()
    if content is not None:
        table.write_text(content, "latin-1")
    done = gdb("-x", copy / "gdbext/heapcmds.py", "-ex", "help mdb findleaks", "-ex", "help mdb")
    assert done.stdout.startswith("blocks that nothing points to")
    assert "--doubtful" in done.stdout
    assert "\nmdb whatis -- " in done.stdout
