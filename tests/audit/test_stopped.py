"""A program that the auditor stopped: its core says why, whatever command is asked first.

tests/audit/misuse.c prints the block. The auditor's message on stderr says what it found.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers, audited
from tests.corekit import HERE, compile_c, kernel_core

CASES = {
    "overrun": ("overrun", 0, "guilty", "heap-overrun"),
    "overrun-realloc": ("overrun", 0, "main", "heap-overrun"),
    "double": ("double-free", 0, "guilty", "double-free"),
    "interior": ("invalid-free", 16, "guilty", "invalid-free"),
    "foreign": ("invalid-free", None, "guilty", "invalid-free"),
}


@pytest.mark.quick(
    "audit,log,guards-overrun",
    "audit,log,guards-overrun-realloc",
    "audit,log,guards-double",
    "audit,guards-interior",
    "audit,guards-foreign",
)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("options", ["audit,log,guards", "audit,guards"])
def test_what_the_auditor_found_is_the_first_finding(tmp_path: Path, case: str, options: str) -> None:
    kind, offset, caller, finding = CASES[case]
    program = compile_c(HERE / "audit" / "misuse.c", tmp_path / "misuse", "-fno-builtin")
    core = kernel_core(program, tmp_path, case, env=audited.environment(options), output=tmp_path / "said")
    printed, said = (tmp_path / "said").read_text().splitlines()
    block, message = int(printed, 16), said.removeprefix("dmods audit: ")
    target = CoreFile(str(core))

    check = answers.answer(target, "heapcheck", "--fail-on-damage")
    assert check["status"] == 3
    assert check["totals"]["misuses"] == check["totals"]["problems"] == 1
    assert check["tables"][0]["name"] == "stopped"
    (row,) = check["tables"][0]["rows"]
    assert row["kind"] == kind
    assert message in row["sentence"] or row["sentence"].startswith(message)
    assert row["stack"][0]["name"].startswith(f"{caller}+")
    assert answers.text(target, "heapcheck").splitlines()[0] == "The auditor stopped the program"
    if offset is not None:
        assert int(row["block"], 16) == block
        assert int(row["pointer"], 16) == block + offset
        if "log" in options or case == "interior":
            assert any(frame["name"].startswith("main+") for frame in row["alloc_stack"])
        whatis = answers.answer(target, "whatis", hex(block))
        assert message in whatis["tables"][0]["rows"][0]["sentence"]
        (state,) = (each["state"] for each in answers.by_name(whatis)["block"])
        assert state == ("free" if case == "double" else "live")
        # A block is live or freed, and not both.
        assert ("freed" in answers.by_name(whatis)) == (case == "double")
        assert "previous" not in answers.by_name(whatis)
        assert message in answers.text(target, "whatis", hex(block)).splitlines()[0]

    first = answers.text(target, "panicinfo").splitlines()[0]
    assert first.startswith("auditor:")
    assert message in first
    findings = answers.by_name(answers.answer(target, "triage"))["findings"]
    (found,) = (each for each in findings if each["severity"] == "fatal")
    assert found["kind"] == finding
    assert message in found["what"]


def test_nothing_is_said_where_the_auditor_did_not_stop_the_program(tmp_path: Path) -> None:
    program = compile_c(HERE / "guards.c", tmp_path / "guards", "-O2", "-fno-builtin")
    told = str(tmp_path / "told")
    core = kernel_core(program, tmp_path, told, "20", "clean", env=audited.environment("audit,guards"))
    check = answers.answer(CoreFile(str(core)), "heapcheck", "--fail-on-damage")
    assert check["status"] == 0
    assert check["totals"]["misuses"] == 0
    assert "stopped" not in answers.by_name(check)
    assert not answers.text(CoreFile(str(core)), "panicinfo").startswith("auditor")
