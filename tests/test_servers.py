"""The table of servers in docs/SOAK.md calls a wrong page wrong (fixtures/servers)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.servers import judge, table
from fixtures.servers.place import Filled, Place
from fixtures.servers.row import Row, rows


def never(_place: Place, _count: int) -> Filled:
    raise AssertionError("no server is started here")


ROW = Row("cache", "server", ("1.0",), "a full cache", 9, 1, ("'key-1'",), never)


def seen(commands: int | None = 1, **given: object) -> judge.Seen:
    return judge.Seen(
        ROW, truth="9 keys", how="gcore", page="largest holder: `a|b` (type: x)", commands=commands, **given
    )


@pytest.mark.parametrize(
    ("filled", "healthy", "verdict"),
    [
        (seen(), seen(None), "right"),
        (seen(2), seen(None), "right in the second command"),
        (seen(None), seen(None), "wrong: does not lead to the cause"),
        (seen(findings=["leak"]), seen(None), "wrong: false finding leak"),
        (seen(), seen(None, findings=["leak"]), "wrong: the healthy one has leak"),
        (seen(None, problem="it died"), seen(None), "wrong: not run: it died"),
    ],
)
def test_a_row_has_its_verdict(filled: judge.Seen, healthy: judge.Seen, verdict: str) -> None:
    cells = table.line(filled, healthy).split(" | ")
    assert cells[-2] == verdict
    assert cells[4] == "`a/b`"


def test_a_row_replaces_its_older_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "SOAK.md"
    page.write_text("# Real programs\n\n| program |\n")
    monkeypatch.setattr(table, "PAGE", page)
    monkeypatch.setattr(table, "rows", lambda: {"cache": ROW})
    table.write(seen(None), seen(None))
    assert "Of 1 rows, 0 are right in the first command, 0 in the second, and 1 are wrong." in page.read_text()
    table.write(seen(), seen(None))
    assert "Of 1 rows, 1 are right in the first command, 0 in the second, and 0 are wrong." in page.read_text()
    assert page.read_text().startswith("# Real programs\n\n| program |\n\n## Servers")


def test_each_row_has_its_words() -> None:
    assert len(rows()) >= 25
    assert all(row.tells and row.many > row.few for row in rows().values())
