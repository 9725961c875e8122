"""dmods run, from outside."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dmods.run import LIBRARY, leaves_no_core
from fixtures.cores import check_core_pattern


def run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dmods", "run", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_it_becomes_the_program() -> None:
    done = run("--", "sh", "-c", "echo $DMODS_AUDIT $LD_PRELOAD; exit 7")
    assert (done.returncode, done.stdout) == (7, f"audit {LIBRARY}\n")


@pytest.mark.parametrize("words", [["--audit", "sample=64k", "--"], ["--audit=sample=64k"]])
def test_words(words: list[str]) -> None:
    done = run(*words, "printenv", "DMODS_AUDIT")
    assert (done.returncode, done.stdout) == (0, "sample=64k\n")


def test_arguments_are_the_programs() -> None:
    assert run("--", "echo", "--audit", "x", "--", "-h").stdout == "--audit x -- -h\n"
    assert run("echo", "-n", "--", "a").stdout == "-- a"


def test_a_limit_that_leaves_no_core_is_told() -> None:
    def limited(most: int) -> str:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        return run("true", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (most, hard))).stderr

    check_core_pattern()  # it is no pipe
    assert not leaves_no_core("|/usr/lib/systemd/systemd-coredump %P")
    assert limited(0) == "dmods: should it crash, it leaves no core: `ulimit -c unlimited` first, or gcore it\n"
    assert limited(1 << 20) == ""


def test_what_was_preloaded_stays(tmp_path: Path) -> None:
    done = run("printenv", "LD_PRELOAD", env={"LD_PRELOAD": "libm.so.6", "PATH": "/usr/bin:/bin"})
    assert done.stdout == f"{LIBRARY} libm.so.6\n"


def test_what_cannot_be() -> None:
    for words, what in (
        (["--", "no-such-program"], "there is no program no-such-program"),
        (["--audit", "audit,nonsense", "true"], "--audit does not know 'nonsense'"),
        (["--audit", "guards=3", "true"], "--audit does not know 'guards=3'"),
        ([], "there is no program to start"),
    ):
        done = run(*words)
        assert done.returncode in (1, 2)
        assert done.stderr.startswith(f"dmods: {what}\n")


def test_a_static_program_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "static"
    subprocess.run(["gcc", "-static", "-x", "c", "-o", program, "-"], input=b"int main(void) { return 0; }", check=True)
    done = run(program)
    assert done.returncode == 1
    assert done.stderr.startswith(f"dmods: {program} is statically linked")
