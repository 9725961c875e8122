"""A process whose first thread has ended, and others live (tests/heap/ended_first.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dmods.corefile.live.picture import open_process
from dmods.corefile.target import CoreFile
from dmods.machine.before_crash import process_findings
from fixtures import answers
from tests.corekit import HERE, compile_c, dumped_in, kernel_core

SOURCE = HERE / "heap" / "ended_first.c"
_LOST, _OF_ITS_FRAME = {100: 7}, {700: 30}  # blocks by the size that the program asked for


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(SOURCE, tmp_path_factory.mktemp("ended") / "ended_first", "-pthread")


def check(target: CoreFile, has_ended: bool = True) -> None:
    leaks = answers.answer(target, "findleaks")
    assert leaks["verdict"] == {"possible": True, "reason": ""}
    # malloc_usable_size() is up to 12 bytes more.
    found = {row["bytes"] // row["leaked"] // 100 * 100: row["leaked"] for row in answers.by_name(leaks)["leaks"]}
    assert found == {**_LOST, **(_OF_ITS_FRAME if has_ended else {})}  # what the other threads hold is live


@pytest.mark.parametrize("how", ["ends", "waits"])
def test_only_a_thread_that_lives_holds_blocks(program: Path, tmp_path: Path, how: str) -> None:
    check(CoreFile(str(kernel_core(program, tmp_path, how))), has_ended=how == "ends")


def test_the_process_itself(program: Path, tmp_path: Path) -> None:
    with subprocess.Popen([program, "ends", "live"], stdout=subprocess.PIPE, cwd=tmp_path) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"READY\n"
            target = open_process(started.pid)
            remarks = {each.what: each.found for each in process_findings(started.pid)}
        finally:
            started.kill()
    assert len(target.threads()) == 2
    assert target.pid == started.pid
    assert target.executable == str(program)
    check(target)
    assert remarks["process"] == f"{started.pid}: {program}"
    assert "of memory in it" in remarks["its core"]
    assert remarks["cwd"] == str(tmp_path)


@pytest.mark.parametrize("userland", ["bullseye", "trixie", "sid", "i386-bookworm"])
def test_other_releases_of_glibc(userland: str) -> None:
    with dumped_in(userland, SOURCE, ["gcc", "-O1", "-pthread"], "ends") as (core, root):
        check(CoreFile(str(core), sysroot=str(root)))
