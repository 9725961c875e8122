"""The output of --json agrees with docs/report.schema.json, on real cores, in every form."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dmods.command import KERNEL as KERNEL_SIDE
from dmods.command import USERLAND, command_modules
from fixtures.documented import problems
from fixtures.kernel import guest
from fixtures.limits import HANG
from tests.output.everything import (
    ELSEWHERE,
    GUEST,
    LANGUAGES,
    SLAB_RECORDS,
    kernel_lines,
    kernel_written,
    process_lines,
    written,
)

ROOT = Path(__file__).resolve().parents[2]
_LOOKED_AT = 50  # rows checked at the beginning of a table, and at its end
DRGN = Path(sys.executable).with_name("drgn")


@cache
def validator() -> Draft202012Validator:
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def wrong(answer: Any) -> list[str]:
    """Return the parts of the answer that do not fit the schema.

    Of a long table a part is checked: its rows are alike.
    """
    answer = {**answer, "tables": [_shortened(table) for table in answer["tables"]]} if "tables" in answer else answer
    part = {"anyOf": [{"$ref": f"#/$defs/{'report' if 'tables' in answer else 'failure'}"}]}
    shape = {**validator().schema, **part}
    errors = Draft202012Validator(shape).iter_errors(answer)
    return [
        f"{list(each.absolute_path)}: {each.message[:300]}" for error in errors for each in error.context or [error]
    ]


def _shortened(table: dict[str, Any]) -> dict[str, Any]:
    rows = table["rows"]
    return {**table, "rows": rows if len(rows) <= 2 * _LOOKED_AT else [*rows[:_LOOKED_AT], *rows[-_LOOKED_AT:]]}


def test_every_command_is_tried() -> None:
    known = {line.name for line in process_lines()} | LANGUAGES
    assert known == {name for name, side, _ in command_modules() if side == USERLAND}
    known = {line.name for line in kernel_lines()} - {"dmods"} | SLAB_RECORDS | ELSEWHERE
    assert known == {name for name, side, _ in command_modules() if side == KERNEL_SIDE}


def test_every_command_for_processes() -> None:
    """Every answer fits the schema, and has the tables and columns that docs/JSON.md says."""
    for line in process_lines():
        answer = json.loads(written(line, True))
        assert wrong(answer) == [], line
        assert problems(answer) == [], line
        assert answer["command"] == line.name


def test_every_command_for_kernels() -> None:
    for line in kernel_lines():
        answer = json.loads(kernel_written(line, True))
        assert wrong(answer) == [], line
        assert problems(answer) == [], line


def test_a_command_for_kernels_from_outside() -> None:
    vmlinux = str(guest(*GUEST).vmlinux)
    line = next(line for line in kernel_lines() if line.name == "memstat")
    words = ["-q", "-c", line.core, "-s", vmlinux, str(ROOT / "drgnext" / "launcher.py"), line.name, *line.words]
    done = subprocess.run([DRGN, *words, "--json"], check=False, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    assert wrong(json.loads(done.stdout)) == []
    assert done.stdout == kernel_written(line, True)


def test_from_outside_and_in_gdb_and_drgn() -> None:
    """The three forms give the same object and the same error."""
    core = next(line.core for line in process_lines() if line.name == "findleaks")
    # gdb first writes about the core.
    begin = "-ex", "echo [begin]"
    for words, status in (
        ("panicinfo", 0),
        ("findstack -v", 0),
        ("owners --top 9", 0),
        ("whatis nosuch", 2),
        ("findleaks --nonesuch", 2),
    ):
        name, *rest = [*words.split(), "--json"]
        forms = (
            [sys.executable, "-m", "dmods", name, core, *rest],
            ["gdb", "-nx", "-q", "-batch", "-x", str(ROOT / "heapcmds.py"), core, *begin, "-ex", f"mdb {words} --json"],
            [str(DRGN), "-q", "-c", core, str(ROOT / "drgnext" / "launcher.py"), name, *rest],
        )
        answers = []
        for form in forms:
            done = subprocess.run(form, check=False, capture_output=True, text=True, timeout=HANG)
            assert done.returncode == status or form[0] == "gdb", (form, done.stderr)
            answer = json.loads(done.stdout.rpartition("[begin]")[2])
            assert wrong(answer) == [], form
            assert (answer["command"], answer["status"]) == (name, status)
            assert Path(answer["target"] or core).samefile(core)
            answers.append({key: value for key, value in answer.items() if key not in ("target", "notes", "error")})
            if status:
                assert answer["error"]["what"] in done.stderr
        assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("tables", 0, "name"), "stack 1"),
        (("tables", 0, "rows", 0, "stack"), "main+0x12"),
        (("tables", 0, "rows", 0, "stack", 0, "pc"), 4096),
        (("tables", 0, "rows", 0, "stack", 0, "exact"), 1),
        (("tables", 0, "rows", 0, "stack", 0, "more"), ""),
        (("tables", 0, "rows", 0, "truncated"), 0),
        (("status",), 9),
        (("error",), {"what": "something"}),
        (("verdict",), {"possible": False, "reason": ""}),
        (("extra",), None),
    ],
)
def test_the_schema_refuses(where: tuple[Any, ...], value: Any) -> None:
    """Without this test, a schema that accepts everything would pass the others."""
    line = next(line for line in process_lines() if str(line) == "findstack")
    answer = json.loads(written(line, True))
    assert wrong(answer) == []
    answer = copy.deepcopy(answer)
    part = answer
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    assert wrong(answer)
