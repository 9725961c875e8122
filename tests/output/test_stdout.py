"""Outputs that cannot be written: full disks, closed pipes and closed descriptors, from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures import cores
from fixtures.limits import HANG

ROOT = Path(__file__).resolve().parents[2]
DRGN = Path(sys.executable).with_name("drgn")
FULL = "dmods: cannot write the output: No space left on device\n"


@pytest.fixture(scope="module")
def core() -> str:
    """Return a core with so many blocks that `walk buf` fills many buffers of a stream."""
    return str(cores.take("frames", mode="threads").core)


def shell(line: str, *values: str) -> subprocess.CompletedProcess[str]:
    words = ["bash", "-c", line, "bash", sys.executable, *values]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=HANG)


LISTINGS = ["maps -v {}", "walk {} mapping", "stacks {}", "maps {} --json", "help maps", "--help", "--version"]


@pytest.mark.parametrize("words", LISTINGS)
def test_a_full_disk(core: str, words: str) -> None:
    done = shell(f'"$1" -m dmods {words.format(core)} > /dev/full')
    assert (done.returncode, done.stderr) == (1, FULL)


def test_a_disk_that_is_full_in_the_middle_of_a_listing(core: str, tmp_path: Path) -> None:
    """The shell's limit on file sizes stands for the disk. SIGXFSZ is ignored, so write() fails with EFBIG."""
    out = tmp_path / "out"
    done = shell('trap "" XFSZ; ulimit -f 16; "$1" -m dmods walk "$2" mapping --json > "$3"', core, str(out))
    assert (done.returncode, done.stderr) == (1, "dmods: cannot write the output: File too large\n")
    assert out.stat().st_size == 16 * 1024


def test_a_closed_output(core: str) -> None:
    done = shell('"$1" -m dmods maps "$2" >&-', core)
    assert (done.returncode, done.stderr) == (1, "dmods: cannot write the output: it is closed\n")


@pytest.mark.parametrize("words", ["stacks {} --json", "walk {} mapping", "help maps"])
def test_a_reader_that_is_gone(core: str, words: str) -> None:
    assert run_without_reader([sys.executable, "-m", "dmods", *words.format(core).split()]) == (0, "")


@pytest.mark.quick("walk mapping", "maps --help")
@pytest.mark.parametrize("words", ["maps", "walk mapping", "findleaks --json", "maps --help"])
def test_drgn(core: str, words: str) -> None:
    command = [str(DRGN), "-q", "-c", core, str(ROOT / "drgnext" / "launcher.py"), *words.split()]
    assert run_on_a_full_disk(command) == (1, FULL)
    assert run_without_reader(command) == (0, "")


@pytest.mark.quick("walk mapping")
@pytest.mark.parametrize("words", ["maps", "walk mapping", "findleaks --json"])
def test_gdb(core: str, words: str) -> None:
    """gdb ignores SIGPIPE and every error of its own output."""
    command = ["gdb", "-nx", "-q", "-batch", "-x", str(ROOT / "heapcmds.py"), "-ex", words, core]
    status, stderr = run_on_a_full_disk(command)
    assert status == 1
    assert "dmods: cannot write the output: " in stderr
    assert "Traceback" not in stderr
    status, stderr = run_without_reader(command)
    assert status == 0
    assert "Traceback" not in stderr
    assert "cannot write" not in stderr


def run_on_a_full_disk(command: list[str]) -> tuple[int, str]:
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=HANG)
    return done.returncode, done.stderr


def run_without_reader(command: list[str]) -> tuple[int, str]:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, check=False, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=HANG)
    os.close(writer)
    return done.returncode, done.stderr
