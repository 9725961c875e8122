"""dmods run --profile-at-exit, and SIGUSR2. The program says what its functions hold (tests/audit/leaves.c)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Optional

import pytest

from dmods.machine.installed import preloadable
from fixtures.answers import dmods
from fixtures.limits import HANG
from tests.audit.auditor import ROOT, compiled


@cache
def program(where: Path) -> Path:
    return compiled("leaves.c", where / "leaves")


def run(where: Path, way: str, name: str = "left.folded", *words: str) -> subprocess.CompletedProcess[str]:
    built = program(where)
    return dmods("run", *words, "--profile-at-exit", where / name, "--", built, way, where / "told", cwd=where)


def told(where: Path) -> dict[str, int]:
    pairs = (line.split() for line in (where / "told").read_text().splitlines())
    return {name: int(size) for name, size in pairs}


def held(path: Path) -> dict[str, int]:
    """Return the bytes of the program's functions in a folded file."""
    sums: dict[str, int] = {}
    for line in path.read_text().splitlines():
        stack, _, size = line.rpartition(" ")
        leaf = stack.split(";")[-1]
        if leaf.endswith("_holder"):
            sums[leaf] = sums.get(leaf, 0) + int(size)
    return sums


def made(where: Path) -> list[str]:
    """Return the files that were left: profiles, small cores and half-written files."""
    return sorted(path.name for path in where.iterdir() if path.name.startswith("left"))


@pytest.mark.thorough("each way to end starts a program")
@pytest.mark.parametrize(
    "way", ["return", "_exit", "quick_exit", "thread", "fork", "vfork", "exec", "handler", "signal"]
)
def test_the_file_has_what_the_program_holds(tmp_path: Path, way: str) -> None:
    done = run(tmp_path, way)
    assert done.returncode == (0 if way == "thread" else 3)
    assert held(tmp_path / "left.folded") == told(tmp_path)
    assert made(tmp_path) == ["left.folded"]
    own = "dmods audit: the program handles or ignores SIGUSR2 itself: the signal writes no profile\n"
    assert (own in done.stderr) == (way in {"handler", "signal"})


@pytest.mark.thorough("each form starts a program")
@pytest.mark.parametrize("end", [".pb.gz", ".heap", ".speedscope.json", ".svg", ".html"])
def test_every_form(tmp_path: Path, end: str) -> None:
    """The file is the one that `dmods profile` makes of a core at the same place."""
    assert run(tmp_path, "return", f"left{end}").returncode == 3
    assert made(tmp_path) == [f"left{end}"]
    known = told(tmp_path)
    if end == ".pb.gz":
        command = ["go", "tool", "pprof", "-top", "-unit=B", "-nodefraction=0", tmp_path / "left.pb.gz"]
        text = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", timeout=HANG).stdout
        rows = {match[2]: int(match[1]) for match in re.finditer(r"^ *(\d+)B .* (\w+_holder)$", text, re.MULTILINE)}
        assert rows == known
    elif end == ".heap":
        head = (tmp_path / "left.heap").read_text().splitlines()
        assert head[0].startswith("heap profile: ")
        assert "MAPPED_LIBRARIES:" in head
        assert any(str(program(tmp_path)) in line for line in head)
    else:
        text = (tmp_path / f"left{end}").read_text()
        assert "small_holder" in text
        assert "large_holder" in text


@pytest.mark.thorough("it waits for a live program")
def test_a_live_program(tmp_path: Path) -> None:
    """SIGUSR2 writes the file while threads allocate. The program sees no child, and its own file comes at its end."""
    name = tmp_path / "left-%n.folded"
    command = [".venv/bin/python", "-m", "dmods", "run", "--profile-at-exit", name, "--"]
    process = subprocess.Popen(
        [*command, program(tmp_path), "live", tmp_path / "told"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "wait: -1\n"  # ECHILD
    first = _appeared(tmp_path / "left-1.folded")
    assert held(first) == told(tmp_path)
    second = _appeared(tmp_path / "left-2.folded", process)
    assert held(second) == told(tmp_path)
    process.communicate("x", timeout=HANG)
    assert process.returncode == 3
    last = tmp_path / f"left-{len(made(tmp_path))}.folded"
    assert held(last) == told(tmp_path)
    assert held(last)["later_holder"] == 5000
    assert made(tmp_path) == [f"left-{number}.folded" for number in range(1, len(made(tmp_path)) + 1)]


def _appeared(path: Path, process: Optional[subprocess.Popen[str]] = None) -> Path:
    """Wait for a file. A signal counts only when the profile before it is finished, so it may have to be sent again."""
    limit = time.monotonic() + HANG
    while not path.exists():
        assert time.monotonic() < limit, f"{path} was not written"
        if process is not None:
            process.send_signal(signal.SIGUSR2)
        time.sleep(0.5)
    return path


@pytest.mark.thorough("two processes write a file each")
def test_each_process_writes_a_file_of_its_own(tmp_path: Path) -> None:
    assert run(tmp_path, "fork", "left-%p.folded").returncode == 3
    files = [held(tmp_path / name) for name in made(tmp_path)]
    parent = told(tmp_path)
    assert sorted(files, key=len) == [parent, {**parent, "later_holder": 5000}]


@pytest.mark.thorough("a sampled program")
def test_samples_are_scaled(tmp_path: Path) -> None:
    """One block in 16k bytes: the estimate of a million bytes in blocks of 100000 is exact, because all are sampled."""
    assert run(tmp_path, "return", "left.folded", "--audit", "sample=16k").returncode == 3
    found = held(tmp_path / "left.folded")
    assert abs(found["large_holder"] - told(tmp_path)["large_holder"]) < 0.15 * 1000000


@pytest.mark.thorough("programs that cannot leave a file")
def test_what_leaves_no_file(tmp_path: Path) -> None:
    for way, status in (("killed", -signal.SIGTERM), ("syscall", 3)):
        assert run(tmp_path, way).returncode == status
        assert made(tmp_path) == []


@pytest.mark.thorough("Python is missing, the folder is not writable")
def test_a_profile_that_cannot_be_made(tmp_path: Path) -> None:
    """Without Python the small core stays, and makes the same profile. Without room for it there is a message."""
    environment = {
        **os.environ,
        "LD_PRELOAD": preloadable(str(ROOT / "dmods" / "libdmods_audit.so")),
        "DMODS_AUDIT": "audit",
        "DMODS_PROFILE": str(tmp_path / "left.folded"),
        "DMODS_PROFILE_PYTHON": "/no/python",
        "DMODS_PROFILE_PACKAGES": str(ROOT),
    }

    def started(**more: str) -> subprocess.CompletedProcess[str]:
        command = f'export DMODS_PROFILE_PID=$$; exec {program(tmp_path)} return "{tmp_path}/told"'
        return subprocess.run(
            ["sh", "-c", command], env={**environment, **more}, capture_output=True, text=True, check=False
        )

    done = started()
    (core,) = made(tmp_path)
    assert done.returncode == 3
    assert (
        done.stderr
        == f"dmods audit: Python cannot be started; `dmods profile` makes the profile of: {tmp_path}/{core}\n"
    )
    assert dmods("profile", tmp_path / core, "-o", tmp_path / "left.folded").returncode == 0
    assert held(tmp_path / "left.folded") == told(tmp_path)
    assert (tmp_path / core).stat().st_blocks * 512 < 2 << 20  # pages that were never used are holes
    done = started(DMODS_PROFILE="/proc/left.folded")
    assert done.returncode == 3
    assert done.stderr.startswith("dmods audit: no profile: this file cannot be made: /proc/left.folded.")


@pytest.mark.thorough("a program that writes to descriptor 2")
def test_a_file_of_the_program_gets_no_message(tmp_path: Path) -> None:
    assert run(tmp_path, "closed").returncode == 3
    assert (tmp_path / "errors").read_text() == ""
    assert held(tmp_path / "left.folded") == told(tmp_path)


def test_a_name_without_a_form_is_refused(tmp_path: Path) -> None:
    done = dmods("run", "--profile-at-exit", tmp_path / "left", "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith(f"dmods: the name {tmp_path}/left says no form\n")
    done = dmods("run", "--profile-at-exit", "/no/folder/left.svg", "--", "true")
    assert done.stderr.startswith("dmods: no file can be written in /no/folder\n")
