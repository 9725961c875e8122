"""The statements in README.md are true."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from fixtures.limits import HANG

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.thorough("it makes the transcripts again")
def test_the_transcripts_have_the_shape_of_what_is_printed_now() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "transcripts", "--check"], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nscripts/transcripts pastes what is printed now"
    assert "transcripts are true" in done.stdout


def test_the_two_literal_lines_are_there() -> None:
    assert "\ngdb -x heapcmds.py core.1603\n" in README
    assert "\n$ dmods findleaks core.1603\n" in README
    assert "\n$ drgn -c vmcore memstat\n" in README


def test_the_scripts_that_are_named_exist() -> None:
    named = set(re.findall(r"\bscripts/[\w-]+", README))
    assert {"scripts/setup", "scripts/demo", "scripts/test"} <= named
    assert [script for script in named if not (ROOT / script).is_file()] == []
