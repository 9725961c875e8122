"""docs/JSON.md has every table, column and total of every command, and says of each which values it has."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dmods.__main__ import _helped
from dmods.cli import json_page
from dmods.cli.reference import everything
from dmods.errors import UsageError
from dmods.report import Column, Schema
from fixtures import documented
from tests.output.everything import process_lines, written

ROOT = Path(__file__).resolve().parents[2]
#: What makes tables of every kind, and what prints a table again.
MAKERS = {"dmods/report.py", "dmods/triage/details.py"}


def sources() -> list[str]:
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "dmods/*.py", "drgnext/*.py"]
    found = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert "dmods/commands/findleaks.py" in found
    return found


def calls(path: str, name: str) -> list[ast.Call]:
    tree = ast.walk(ast.parse((ROOT / path).read_text()))
    return [each for each in tree if isinstance(each, ast.Call) and getattr(each.func, "id", "") == name]


def inside(schema: Schema) -> Iterator[Schema]:
    """Yield the schema and those of the objects in its cells."""
    yield schema
    for column in schema.columns:
        if column.fields is not None:
            yield from inside(column.fields)


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "JSON.md").read_text() == json_page.page(everything()), "run scripts/docs"


def test_every_command_has_a_table() -> None:
    commands = everything()
    assert len(commands) > 70
    assert [each.name for each in commands if not each.schemas()] == []


def test_a_table_of_json_is_made_from_a_schema() -> None:
    """Only text may have a table that no schema declares."""
    made = [
        (path, call)
        for path in sources()
        if path not in MAKERS and "from dmods.report import" in (ROOT / path).read_text()
        for call in calls(path, "Table")
    ]
    assert len(made) > 20
    found = [
        f"{path}:{call.lineno}"
        for path, call in made
        if not any(each.arg == "only" and ast.unparse(each.value) == "'text'" for each in call.keywords)
    ]
    assert found == []


def test_every_schema_is_one_of_a_command() -> None:
    """A module's schemas are listed by a command: else the page would lack a table."""
    commands = everything()
    listed = [schema for command in commands for table in command.schemas() for schema in inside(table)]
    listed += [
        each for command in commands for total in command.sums() if total.fields for each in inside(total.fields)
    ]
    known = {schema.name for schema in listed}, {id(schema.columns) for schema in listed}
    declared = 0
    lost = []
    for path in sources():
        if path in MAKERS or not calls(path, "Schema"):
            continue
        module = import_module(path[:-3].replace("/", "."))
        for name, value in vars(module).items():
            if isinstance(value, Schema):
                declared += 1
                # A command may say in its own words when a table is there: the columns are the same then.
                if value.name not in known[0] or id(value.columns) not in known[1]:
                    lost.append(f"{path}: {name}")
    assert lost == []
    assert declared > 150


def test_tables_of_one_name_say_when_each_comes() -> None:
    found: list[str] = []
    several = 0
    for command in everything():
        tables: dict[str, list[str]] = {}
        for schema in command.schemas():
            tables.setdefault(schema.name, []).append(schema.when)
        for name, whens in tables.items():
            several += len(whens) > 1
            if len(whens) > 1 and ("" in whens or len(set(whens)) < len(whens)):
                found.append(f"{command.name}: {name}")
    assert found == []
    assert several > 3


def test_every_kind_is_known() -> None:
    columns = [
        column
        for command in everything()
        for schema in command.schemas()
        for each in inside(schema)
        for column in each.columns
    ]
    columns += [total for command in everything() for total in command.sums()]
    assert {column.kind for column in columns} <= json_page.KINDS.keys()
    assert json_page.KINDS.keys() == documented.FITS.keys()
    odd = [c.name for c in columns if (c.kind in ("object", "objects")) != (c.fields is not None)]
    assert odd == []


def test_statuses() -> None:
    by_name = {each.name: each for each in everything() if "kernel" not in each.requires}
    assert list(by_name["findleaks"].statuses()) == [0, 1, 2, 3, 4]
    assert list(by_name["heapsizes"].statuses()) == [0, 1, 2, 4]
    assert list(by_name["maps"].statuses()) == [0, 1, 2, 4]
    assert list(by_name["cores"].statuses()) == [0, 1, 2]


def test_help_prints_the_part_about_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert _helped(["json", "walk"])
    said = capsys.readouterr().out
    headings = [line for line in said.splitlines() if line.startswith("## ")]
    assert headings == ["## walk", "## walk (kernel)"]
    assert "### `allpages`: only with NAME allpages\n" in said
    with pytest.raises(UsageError, match="there is no command 'nosuch'"):
        _helped(["json", "nosuch"])


def test_help_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert _helped(["json"])
    assert capsys.readouterr().out == (ROOT / "docs" / "JSON.md").read_text()


def test_a_record_takes_names_from_the_dump() -> None:
    schema = Schema("one", "a thing", (Column("pid", "count"), Column("*", "address", when="it is known")))
    table = schema.record([("rax", 16), ("pid", 3)])
    assert [(column.name, column.kind, column.title) for column in table.columns] == [
        ("rax", "address", "rax"),
        ("pid", "count", "pid"),
    ]
    assert list(table.rows) == [(16, 3)]
    plain = Schema("one", "a thing", (Column("pid", "count"),)).record([("undeclared", "x")])
    assert [(column.name, column.kind) for column in plain.columns] == [("undeclared", "text")]


def _add_column(answer: dict[str, Any]) -> None:
    answer["tables"][0]["rows"][0]["extra"] = 1


def _take_column(answer: dict[str, Any]) -> None:
    del answer["tables"][0]["rows"][0]["thread"]


def _add_table(answer: dict[str, Any]) -> None:
    answer["tables"].append({"name": "extra", "rows": []})


def _take_table(answer: dict[str, Any]) -> None:
    answer["tables"] = []


def _add_total(answer: dict[str, Any]) -> None:
    answer["totals"]["extra"] = 1


def _set(value: Any, *where: Any) -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        part: Any = answer
        for key in where[:-1]:
            part = part[key]
        part[where[-1]] = value

    return change


_ROW = ("tables", 0, "rows", 0)
WRONG: Mapping[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "another version": (_set(2, "version"), "version 2"),
    "another command": (_set("nosuch", "command"), "command nosuch"),
    "a column more": (_add_column, "table threads: column extra"),
    "a column less": (_take_column, "table threads: no column thread"),
    "a table more": (_add_table, "table extra"),
    "a table less": (_take_table, "no table threads"),
    "a total more": (_add_total, "totals: column extra"),
    "null": (_set(None, *_ROW, "thread"), "table threads: column thread is null"),
    "a text for a number": (_set("1", *_ROW, "thread"), "table threads: column thread is not count: 1"),
    "true for a number": (_set(True, *_ROW, "thread"), "table threads: column thread is not count: True"),
    "a number for a text": (_set(1, *_ROW, "end"), "table threads: column end is not text: 1"),
    "a number for an address": (_set(4096, *_ROW, "sp"), "table threads: column sp is not address: 4096"),
    "digits in upper case": (_set("0xA", *_ROW, "sp"), "table threads: column sp is not address: 0xA"),
    "a text for a stack": (_set("main", *_ROW, "stack"), "table threads: column stack is not objects: main"),
    "a key more": (_set(1, *_ROW, "stack", 0, "extra"), "table threads: column stack: column extra"),
    "a key of another type": (
        _set(1, *_ROW, "stack", 0, "exact"),
        "table threads: column stack: column exact is not flag: 1",
    ),
    "a status": (_set(4, "status"), "status 4"),
    "a verdict": (_set({"possible": True, "reason": ""}, "verdict"), "a verdict"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_page_does_not_say_is_found(name: str) -> None:
    """Without this test, a comparison that finds nothing would let the others pass."""
    line = next(line for line in process_lines() if str(line) == "findstack")
    answer = json.loads(written(line, True))
    assert documented.problems(answer) == []
    change, problem = WRONG[name]
    answer = copy.deepcopy(answer)
    change(answer)
    assert documented.problems(answer) == [problem]
