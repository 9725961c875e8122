"""Goroutines that are in C code, compared with what Go's runtime printed when the program died there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from fixtures.limits import HANG
from tests import corekit
from tests.runtimes.golang.test_goroutines import alive, as_crash_prints, said

pytestmark = pytest.mark.thorough("it builds Go programs with C in them")

SOURCE = Path(__file__).with_name("cgostacks.go")


@pytest.fixture(scope="module", params=["exe", "pie"])
def core(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("cgostacks")
    build = ["go", "build", f"-buildmode={request.param}", "-ldflags=-s -w", "-o", where / "cgostacks", SOURCE]
    environment = {**os.environ, "GO111MODULE": "off", "CGO_ENABLED": "1"}
    subprocess.run(build, check=True, cwd=where, env=environment, timeout=HANG)
    (where / "run").mkdir()
    return corekit.kernel_core(where / "cgostacks", where / "run", "trace", env={"GOTRACEBACK": "crash"})


def test_a_goroutine_in_c_has_all_frames_of_go(core: Path) -> None:
    """Also those below the C code that called back."""
    target = CoreFile(str(core))
    word = said(core.with_name("trace").read_text())[1]
    assert word.state == "syscall, locked to thread"
    assert len(word.frames) > 15
    assert list(as_crash_prints(target, alive(target)[1])) == word.frames


def test_the_thread_is_followed_through_libcs_signal_frames(core: Path) -> None:
    stack = answers.by_name(answers.answer(CoreFile(str(core)), "findstack"))["threads"][0]["stack"]
    notes = [frame.get("note", "") for frame in stack]
    crashed = next(number for number, note in enumerate(notes) if "SIGSEGV SEGV_MAPERR at 0x8" in note)
    assert "runtime.asmcgocall" in stack[crashed + 1]["name"]
