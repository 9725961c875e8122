"""The statements in README.md are true."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from fixtures.answers import finished, user_environment
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


@pytest.mark.parametrize(("program", "status"), [("free(malloc(24))", 0), ("malloc(24)", 3)])
def test_the_lines_for_a_ci_job(tmp_path: Path, program: str, status: int) -> None:
    """The block takes a core at the end of ./test, from an empty folder, and its status is the verdict."""
    (block,) = (text for text in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "--fail-on-leak" in text)
    (tmp_path / "test.c").write_text(f"#include <stdlib.h>\nint main(void) {{ {program}; return 0; }}\n")
    subprocess.run(["gcc", "-O0", "-Wno-unused-result", "-o", "test", "test.c"], cwd=tmp_path, check=True)
    environment = {**user_environment(tmp_path), "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
    done = finished("sh", "-c", block, cwd=tmp_path, env=environment)
    assert (tmp_path / "core.ci").is_file(), done.stderr
    assert done.returncode == status, done.stdout + done.stderr
