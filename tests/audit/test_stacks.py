"""Every stack is libgcc's, where stacks are hard to walk and where code comes and goes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.auditor import built, compiled, environment


@pytest.fixture(scope="module")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("check") / "check.so", "-DDMODS_AUDIT_CHECK", "tests/audit/check.c", "-lgcc_s")


def checked(folder: Path, library: Path, words: str, command: list[object], **more: str) -> int:
    """Runs it; returns how many stacks were compared. None may differ."""
    variables = environment(words, library, DMODS_CHECK=str(folder / "check"), **more)
    done = subprocess.run([str(word) for word in command], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compared, differed = zip(*(map(int, line.split()) for line in (folder / "check").read_text().splitlines()))
    assert sum(differed) == 0, done.stderr
    return sum(compared)


@pytest.mark.parametrize("words", ["audit", "audit=4", "audit=50"])
def test_hard_stacks(tmp_path: Path, checking: Path, words: str) -> None:
    program = compiled("twisted.cc", tmp_path / "twisted")
    plugins = [compiled("plugin.c", tmp_path / f"{n}.so", "-shared", "-fPIC", f"-DROOM={n}") for n in (40, 200, 72)]
    assert checked(tmp_path, checking, words, [program, *plugins]) > 200_000


def test_without_dl_find_object(tmp_path: Path) -> None:
    flags = ("-DDMODS_AUDIT_CHECK", "-DDMODS_AUDIT_OLD_GLIBC", "tests/audit/check.c", "-lgcc_s")
    library, program = built(tmp_path / "old.so", *flags), compiled("twisted.cc", tmp_path / "twisted")
    assert checked(tmp_path, library, "audit", [program]) > 200_000


def test_python(tmp_path: Path, checking: Path) -> None:
    (tmp_path / "data.json").write_text(
        json.dumps([{"number": n, "text": str(n), "list": [n] * 5} for n in range(5000)])
    )
    load = "import json, sys, re, threading; print(len(json.load(open(sys.argv[1]))))"
    command = [sys.executable, "-c", load, tmp_path / "data.json"]
    assert checked(tmp_path, checking, "audit", command, PYTHONMALLOC="malloc", DMODS_CHECK_EVERY="3") > 20_000
