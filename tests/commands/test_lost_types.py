"""Leaked blocks have their type in every sentence, with records of their callers and without (lost.cc)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Optional

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers, audited
from tests.corekit import HERE, kernel_core

_LOST = 8000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lost") / "lost"
    # Without symbols and debug information, the object itself names its class.
    subprocess.run(["g++", "-O1", "-s", str(HERE / "commands" / "lost.cc"), "-o", str(made)], check=True)
    return made


@pytest.mark.parametrize("options", [None, "audit"], ids=["plain", "recorded"])
def test_the_type_of_what_leaked(program: Path, tmp_path: Path, options: Optional[str]) -> None:
    env = audited.environment(options) if options is not None else None
    target = CoreFile(str(kernel_core(program, tmp_path, env=env)))
    (row,) = answers.by_name(answers.answer(target, "suspects", "--least", "1M"))["suspects"]
    assert row["kind"] == "leaked"
    assert _LOST - 10 <= row["count"] <= _LOST  # a stale word may hold a few
    found = re.search(r"(?:of [\d,]+ bytes|; one) \(Session\)", row["sentence"])
    assert found, row["sentence"]
    # `whatis` says it of the block itself.
    assert "class Session" in str(answers.answer(target, "whatis", row["address"]))
    (leak,) = (each for each in answers.by_name(answers.answer(target, "triage"))["findings"] if each["kind"] == "leak")
    assert re.search(r"the first of [\d,]+ blocks of [\d,]+ bytes \(Session\)", str(leak["evidence"]))
