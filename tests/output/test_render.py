"""Text and JSON of one Report agree, are streamed, and never let a dump control the terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, Optional, cast

import pytest

from dmods.errors import UserError
from dmods.output.render import render
from dmods.report import Address, Column, Report, Table, Value, Verdict
from dmods.target import Target


class Place:
    """A target with the parts that render uses."""

    def __init__(self, path: Optional[str] = "core.1603", notes: Sequence[str] = ()) -> None:
        self.path = path
        self.pid = 1603
        self.notes = list(notes)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def text(report: Report, target: Optional[Place] = None, out: Optional[io.StringIO] = None) -> tuple[str, str]:
    out, err = out or io.StringIO(), io.StringIO()
    render(report, "test", cast(Optional[Target], target), False, out, err)
    return out.getvalue(), err.getvalue()


def as_json(report: Report, target: Optional[Place] = None) -> Any:
    out, err = io.StringIO(), io.StringIO()
    render(report, "test", cast(Optional[Target], target), True, out, err)
    assert err.getvalue() == ""
    return json.loads(out.getvalue())


LEAKS = (
    Column("cache", width=16),
    Column("leaked", "count", width=7),
    Column("bufctl", "address", width=17),
    Column("caller"),
)
LEAK_ROWS = [
    ("malloc-1032", 1, 0x7F3A1C0025C0, "buf_create+0x12"),
    ("malloc-1032", 1, 0x7F3A1C002580, "func_leak+0x12"),
    ("malloc-1032", 1, 0x7F3A1C002540, "main+0x12"),
]


def test_mdbs_layout_to_the_letter() -> None:
    footer = ["-" * 72, "           Total       3 buffers, 3096 bytes"]
    out, _ = text(Report([Table("leaks", LEAKS, LEAK_ROWS, footer=footer)]))
    assert out == (
        "CACHE             LEAKED            BUFCTL CALLER\n"
        "malloc-1032            1  00007f3a1c0025c0 buf_create+0x12\n"
        "malloc-1032            1  00007f3a1c002580 func_leak+0x12\n"
        "malloc-1032            1  00007f3a1c002540 main+0x12\n"
        "------------------------------------------------------------------------\n"
        "           Total       3 buffers, 3096 bytes\n"
    )


def test_json_is_what_the_text_says() -> None:
    table = Table("leaks", LEAKS, LEAK_ROWS)
    found = as_json(Report([table], notes=["a note"], totals={"count": 3, "bytes": 3096}), Place())
    assert found == {
        "version": 1,
        "command": "test",
        "target": "core.1603",
        "notes": ["a note"],
        "tables": [
            {
                "name": "leaks",
                "rows": [
                    {"cache": cache, "leaked": leaked, "bufctl": hex(at), "caller": caller}
                    for cache, leaked, at, caller in LEAK_ROWS
                ],
            }
        ],
        "totals": {"count": 3, "bytes": 3096},
        "status": 0,
    }
    lines = text(Report([table]))[0].splitlines()
    for line, row in zip(lines[1:], found["tables"][0]["rows"]):
        cache, leaked, at, caller = line.split()
        assert (cache, int(leaked), int(at, 16), caller) == (
            row["cache"],
            row["leaked"],
            int(row["bufctl"], 16),
            row["caller"],
        )


def test_values_of_every_kind() -> None:
    columns = (
        Column("name"),
        Column("at", "address"),
        Column("size", "bytes"),
        Column("share", "percent", title="%Tot"),
        Column("mean", "count"),
    )
    rows: list[tuple[Value, ...]] = [("a", 0x7000, 2**40, 33.4, 1.5), (None, None, None, None, None)]
    out, _ = text(Report([Table("t", columns, rows)]))
    assert out.splitlines() == [
        "NAME   AT          SIZE %Tot MEAN",
        "a    7000 1099511627776  33%  1.5",
        "-       -             -    -    -",
    ]
    first, second = as_json(Report([Table("t", columns, rows)]))["tables"][0]["rows"]
    assert first == {"name": "a", "at": "0x7000", "size": 2**40, "share": 33.4, "mean": 1.5}
    assert set(second.values()) == {None}


def test_styles() -> None:
    columns = (Column("at", "address"), Column("name"))
    rows = [(0x10, "one"), (0x20, "two")]
    assert text(Report([Table("t", columns, rows, style="plain")]))[0] == "0x10 one\n0x20 two\n"
    assert text(Report([Table("t", columns[:1], [(16,)], style="plain")]))[0] == "0x10\n"
    record = text(Report([Table("t", columns, rows, style="record", title="Things")]))[0]
    assert record == "Things\nAT:   10\nNAME: one\n\nAT:   20\nNAME: two\n"
    assert text(Report([Table("a", columns, []), Table("b", columns, rows[:1])]))[0].splitlines()[-1] == "10 one"


def test_hidden_columns_are_for_json_only() -> None:
    columns = (Column("a"), Column("secret", "bytes", hidden=True), Column("b", "count"))
    for style, expected in (("grid", "A B\nx 2\n"), ("plain", "x 2\n"), ("record", "A: x\nB: 2\n")):
        report = Report([Table("t", columns, [("x", 1, 2)], style=style)])
        assert text(report)[0] == expected
        assert as_json(report)["tables"][0]["rows"] == [{"a": "x", "secret": 1, "b": 2}]


def test_notes_go_to_stderr_once_and_last() -> None:
    report = Report(notes=["3 of 40 segments missing", "other"])

    def rows() -> Iterator[tuple[Value, ...]]:
        yield (1,)
        report.notes.append("found on the way")

    report.tables.append(Table("t", [Column("n", "count")], rows(), style="plain"))
    place = Place(notes=["3 of 40 segments missing"])
    out, err = text(report, place)
    assert out == "1\n"
    assert err == "note: 3 of 40 segments missing\nnote: other\nnote: found on the way\n"


def test_rows_are_not_held_in_memory() -> None:
    """Ten thousand rows are asked for one by one. The output never lags far behind."""

    class Counting(io.StringIO):
        written = 0

        def write(self, what: str) -> int:
            self.written += what.count("\n")
            return len(what)

    for style in ("plain", "grid", "record"):
        for as_object in (False, True):
            out = Counting()
            lag = 0

            def rows(out: Counting = out) -> Iterator[tuple[Value, ...]]:
                nonlocal lag
                for number in range(10_000):
                    lag = max(lag, number - out.written)
                    yield (number,)

            report = Report([Table("t", [Column("at", "address")], rows(), style=style)])
            render(report, "walk", None, as_object, out, io.StringIO())
            assert out.written >= 10_000
            assert lag <= 2_000


def test_a_path_cannot_drive_the_terminal() -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\nfake line\udc80"
    out, err = text(Report([Table("t", [Column("path")], [(nasty,)])], notes=[nasty]))
    assert "\x1b" not in out + err
    assert out.count("\n") == 2
    assert err.count("\n") == 1
    (out + err).encode("utf-8")
    (row,) = as_json(Report([Table("t", [Column("path")], [(nasty,)])]))["tables"][0]["rows"]
    assert row == {"path": nasty.replace("\udc80", "\ufffd")}


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report([Table("t", [Column("n", "count")], [(1,)])])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in text(report)[0]
    coloured = text(report, out=Terminal())[0]
    assert "\x1b[1m" in coloured
    assert coloured.replace("\x1b[1m", "").replace("\x1b[22m", "") == text(report)[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in text(report, out=Terminal())[0]


def test_the_target_by_name() -> None:
    assert as_json(Report())["target"] is None
    assert as_json(Report(), Place())["target"] == "core.1603"
    assert as_json(Report(), Place(None))["target"] == "process 1603"
    assert as_json(Report()) == {
        "version": 1,
        "command": "test",
        "target": None,
        "tables": [],
        "totals": {},
        "notes": [],
        "status": 0,
    }


def test_structured_values_stand_in_json() -> None:
    """A hidden column holds lists and mappings. Addresses in them are "0x..."."""
    frames = [{"address": Address(0x401000), "function": "main"}, {"address": Address(0), "function": None}]
    table = Table("stacks", (Column("count", "count"), Column("stack", hidden=True)), [(2, frames)])
    out, err = io.StringIO(), io.StringIO()
    render(Report([table]), "stacks", None, True, out, err)
    (row,) = json.loads(out.getvalue())["tables"][0]["rows"]
    assert row == {
        "count": 2,
        "stack": [{"address": "0x401000", "function": "main"}, {"address": "0x0", "function": None}],
    }
    out = io.StringIO()
    render(Report([table]), "stacks", None, False, out, err)
    assert out.getvalue().split() == ["COUNT", "2"]


def test_a_size_is_short_for_people_and_exact_in_json() -> None:
    report = Report([Table("groups", (Column("size", "size", width=6), Column("caller")), [(1572864, "main+0x12")])])
    assert text(report)[0].splitlines()[1] == "  1.5M main+0x12"
    assert as_json(report)["tables"][0]["rows"] == [{"size": 1572864, "caller": "main+0x12"}]


def test_a_verdict_that_is_not_possible_is_said_with_the_results() -> None:
    report = Report(verdict=Verdict(False, "the core lacks 3 of 40 segments"), status=4)
    out, err = text(report)
    assert (out, err) == ("no verdict: the core lacks 3 of 40 segments\n", "")
    answer = as_json(report)
    assert answer["verdict"] == {"possible": False, "reason": "the core lacks 3 of 40 segments"}
    assert answer["status"] == 4


def test_a_verdict_that_is_possible_changes_no_text() -> None:
    report = Report(verdict=Verdict(True))
    assert text(report) == ("", "")
    assert as_json(report)["verdict"] == {"possible": True, "reason": ""}


def test_an_error_among_the_rows_ends_the_object() -> None:
    """A walk may find out late that it cannot go on. What was found stays, and the object is whole."""

    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        raise UserError("there is no more", "ask for less")

    columns = (Column("n", "count"),)
    report = Report([Table("first", columns, [(7,)]), Table("walk", columns, rows())])
    out = io.StringIO()
    with pytest.raises(UserError) as raised:
        render(report, "walk", None, True, out, io.StringIO())
    assert raised.value.in_json
    answer = json.loads(out.getvalue())
    assert answer["tables"][0] == {"name": "first", "rows": [{"n": 7}]}
    assert answer["tables"][1]["name"] == "walk"
    assert (answer["error"], answer["status"]) == ({"what": "there is no more", "how": "ask for less"}, 1)


def test_a_function_makes_its_value_for_json_alone_and_once() -> None:
    calls = []

    def stack() -> list[str]:
        calls.append(1)
        return ["main"]

    report = Report([Table("t", (Column("n", "count"), Column("stack", hidden=True)), [(1, stack), (2, stack)])])
    text(report)
    assert calls == []
    assert [row["stack"] for row in as_json(report)["tables"][0]["rows"]] == [["main"], ["main"]]
    assert calls == [1]


def test_tables_of_one_form() -> None:
    column = (Column("n", "count"),)
    report = Report([Table("a", column, [(1,)], only="text"), Table("b", column, [(2,)], only="json")])
    assert text(report)[0] == "N\n1\n"
    assert [table["name"] for table in as_json(report)["tables"]] == ["b"]
