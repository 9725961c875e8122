"""``--lines`` of findleaks and umausers, compared with binutils' addr2line."""

from __future__ import annotations

import os
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from tests.auditkit import answer, callers, text
from tests.modules.test_lines import addr2line


def place_of(target: CoreFile, frame: dict[str, Any]) -> str:
    """Return "file.c:42" for the function of a frame, by addr2line."""
    assert target.program is not None
    assert target.program.file is not None
    address = int(frame["pc"], 16) - target.program.bias - (0 if frame["exact"] else 1)
    _name, path, line = addr2line(target.program.file, [address])[0][-1]
    return f"{os.path.basename(path or '')}:{line}"


@pytest.mark.parametrize(("command", "tables"), [("findleaks", ("leaks", "oversized")), ("umausers", ("users",))])
def test_the_column_has_the_line_of_the_caller(command: str, tables: tuple[str, ...]) -> None:
    target, _truth, _told = callers()
    found = answer(target, command, "--lines")["tables"]
    rows = [row for name in tables for row in found[name]]
    compared = 0
    for row in rows:
        frame = next(frame for frame in row["stack"] if frame["name"] == row["caller"])
        if frame["module"] == "callers":
            assert row["source"] == place_of(target, frame)
            assert row["source"] == f"{os.path.basename(frame['source']['file'])}:{frame['source']['line']}"
            compared += 1
    assert compared >= 3
    for shown in (row["source"] for row in rows):
        assert f" {shown}" in text(target, command, "--lines")


@pytest.mark.parametrize("command", ["findleaks", "umausers"])
def test_nobody_pays_for_lines_who_does_not_ask(command: str) -> None:
    target, _truth, _told = callers()
    for rows in answer(target, command)["tables"].values():
        assert all(row["source"] is None for row in rows)
        assert not any("source" in frame for row in rows for frame in row.get("stack") or ())
    assert "SOURCE" not in text(target, command)
    assert "callers.c" not in text(target, command)


def test_live_bytes_by_source_file() -> None:
    target, _truth, _told = callers()
    rows = answer(target, "umausers", "--by", "file")["tables"]["users"]
    (own,) = [row for row in rows if row["file"].endswith("/callers.c")]
    by_stack = answer(target, "umausers", "--by", "stack", "--all", "--depth", "0")["tables"]["users"]
    assert own["bytes"] == sum(row["bytes"] for row in by_stack if "`" not in row["caller"])
