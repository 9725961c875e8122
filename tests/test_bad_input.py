"""Bad input through the ``dmods`` command line, case by case: a clear line, and the rest of the answer."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from dmods._engine import Image
from fixtures import _cache, answers
from fixtures.cores import CoreSet, take
from fixtures.limits import HANG
from fixtures.truth import Truth
from tests.corekit import compile_c, kernel_core
from tests.fuzz.driver import Victim, Worker
from tests.fuzz.recipes import Recipe
from tools.bench.heaps import Cache

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 30  # wall time for any of these; a hang would be minutes


@dataclass
class Answer:
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        made = json.loads(self.out)
        assert isinstance(made, dict)
        return made

    def notes(self) -> str:
        return "\n".join(self.json["notes"])


def dmods(*words: object) -> Answer:
    """Return the answer of the command line, as a user types it. A traceback is an error."""
    done = answers.dmods(*words)
    assert done.returncode in (0, 1, 2, 4), f"{words} ended with {done.returncode}: {done.stderr}"
    return Answer(done.returncode, done.stdout, done.stderr)


def refused(path: Path, *said: str, command: str = "findleaks") -> None:
    """Check that there are two lines on stderr, nothing on stdout, and status 1."""
    answer = dmods(command, path)
    assert answer.status == 1
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert len(lines) == 2, answer.err
    for text in said:
        assert text in answer.err


@pytest.fixture(scope="module")
def small() -> CoreSet:
    return take("corrupt", mode="overrun")


def test_not_a_core(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("Dear reader,\n" * 100)
    refused(tmp_path / "letter", "is not ELF: not a core file")
    refused(Path("/bin/true"), "not a core", "--exe")
    refused(tmp_path, "is a folder")
    refused(tmp_path / "nothing", "No such file")


def test_empty(tmp_path: Path) -> None:
    (tmp_path / "core").touch()
    refused(tmp_path / "core", "is empty", "ulimit -c")


def test_other_kinds_of_dumps(tmp_path: Path) -> None:
    for start, said in (
        (b"MDMP\x93\xa7\0\0", "is a minidump"),
        (b"ProblemType: Crash\n", "without a core"),
        (b"KDUMP   ", "is a kernel dump"),
        (b"makedumpfile\0\0\0\0", "is a kernel dump"),
    ):
        (tmp_path / "dump").write_bytes(start + bytes(100))
        refused(tmp_path / "dump", said, command="owners")  # drgn opens kernel dumps for findleaks


def test_of_another_architecture(tmp_path: Path, small: CoreSet) -> None:
    data = bytearray(small.core.read_bytes())
    struct.pack_into("<H", data, 18, 243)  # EM_RISCV
    (tmp_path / "core").write_bytes(data)
    answer = dmods("findleaks", tmp_path / "core")
    assert answer.status == 1
    assert "riscv" in answer.err.lower()
    assert "x86_64" in answer.err


def test_truncated_at_any_byte(tmp_path: Path) -> None:
    """The core is cut at boundaries of the headers and of what they lead to, and at places between."""
    victim = Victim("kernel", tmp_path)
    dice = random.Random(1603)
    header, sample, last = (3, 2, 1) if _cache.QUICK in os.environ else (64, 15, 10)
    # Between two boundaries all is of one kind. Of the many words of notes a sample is enough.
    boundaries = victim.fields.boundaries()
    ends = (
        [at for at in boundaries if at <= header]
        + boundaries[:: max(1, len(boundaries) // sample)]
        + boundaries[-last:]
    )
    lengths = sorted({*ends, *(dice.randrange(victim.fields.size) for _ in range(sample))})
    with Worker() as worker:
        for length in lengths:
            recipe = Recipe("kernel", keep=length / victim.fields.size)
            victim.damage(recipe)
            found = worker.judge(recipe, victim.core, None).findings
            assert not found, f"cut at {length}: {found[0].command}: {found[0].trace}"
            victim.mend(recipe)
    for length in (64 + 3 * 56, victim.fields.size // 3, victim.fields.size - 1):
        shutil.copyfile(victim.core, tmp_path / "cut")
        os.truncate(tmp_path / "cut", length)
        answer = dmods("findleaks", tmp_path / "cut", "--json")
        verdict = answer.json["verdict"]
        assert answer.status == (0 if verdict["possible"] else 4)
        # Where little is cut off, it may be none of the heap, the stacks and the data.
        assert verdict["reason"] or verdict["possible"]
        assert "truncated" in answer.notes()


@pytest.mark.quick("33", "16")
@pytest.mark.parametrize("bits", [0x00, 0x10, 0x22, 0x21, 0x33, 0x7F, 0x1FF])
def test_segments_left_out_by_the_coredump_filter(tmp_path: Path, bits: int) -> None:
    program = compile_c(ROOT / "tests" / "fuzz" / "victim.c", tmp_path / "victim", "-pthread")
    core = kernel_core(program, tmp_path, coredump_filter=bits)
    answer = dmods("findleaks", core, "--json")
    assert answer.status == (0 if bits & 1 else 4)
    assert answer.json["verdict"]["possible"] == bool(bits & 1)
    leaks = answer.json["totals"]
    if bits & 1:  # private anonymous memory: the heap
        assert leaks["leaked_count"] >= 60
        assert "no heap" not in answer.notes()
    else:
        assert "missing from the core" in answer.notes()
        assert leaks["leaked_count"] is None
    # Threads and their registers are in every core.
    assert len(dmods("findstack", core, "--json").json["tables"]) >= 1
    assert "SIGABRT" in dmods("panicinfo", core).out
    assert dmods("maps", core, "--json").json["totals"]


def test_the_executable_is_gone_or_another(tmp_path: Path) -> None:
    source = ROOT / "tests" / "fuzz" / "victim.c"
    program = compile_c(source, tmp_path / "victim", "-pthread", "-Wl,--build-id")
    core = kernel_core(program, tmp_path)
    before = dmods("findleaks", core, "--json").json["totals"]
    assert before["direct_count"]
    program.unlink()
    answer = dmods("findleaks", core, "--json")
    assert answer.json["totals"] == before
    assert "not on this machine (victim)" in answer.notes()
    compile_c(source, tmp_path / "victim", "-pthread", "-Wl,--build-id", "-O0", "-DANOTHER")
    answer = dmods("findleaks", core, "--json")
    assert answer.json["totals"] == before
    assert "victim" in answer.notes()
    assert "build-id" in answer.notes()
    # The user's program is used, and a note says so.
    answer = dmods("findleaks", core, "--exe", tmp_path / "victim", "--json")
    assert answer.json["totals"] == before
    assert "build-id" in answer.notes()


@pytest.mark.parametrize("program", ["nomalloc", "freestanding"])
def test_a_process_that_never_called_malloc(program: str) -> None:
    core = take(program, variant="static" if program == "freestanding" else "dynamic").core
    answer = dmods("findleaks", core, "--json")
    assert answer.status == 4
    assert answer.json["totals"]["direct_count"] is None
    assert not answer.json["verdict"]["possible"]
    if program == "freestanding":
        assert "no heap" in answer.notes()
    assert dmods("maps", core, "--json").json["totals"]
    assert dmods("panicinfo", core).out


@pytest.mark.quick("tcache")
@pytest.mark.parametrize("mode", ["top", "fastbin", "tcache"])
def test_an_arena_whose_lock_is_held(mode: str) -> None:
    made = take("inmalloc", mode=mode)
    answer = dmods("findleaks", made.core, "-d", "-i", "--json")
    assert answer.status == 0
    assert answer.json["totals"]["direct_count"] >= len(made.truth.addresses("direct"))
    if mode != "tcache":  # the tcache needs no lock
        assert "locked" in answer.notes()


def direct_and_kept(made: CoreSet) -> tuple[Answer, int, Truth]:
    answer = dmods("findleaks", made.core, "-i", "--json")
    assert answer.status == 0
    return answer, answer.json["totals"]["direct_count"], made.truth


@pytest.mark.quick("overrun")
@pytest.mark.parametrize("mode", ["overrun", "overrun-zero", "overrun-free", "overrun-top"])
def test_an_overrun_header(mode: str) -> None:
    """A note says so, and all but a few blocks near it are judged as if the header were intact."""
    made = take("corrupt", mode=mode)
    answer, count, truth = direct_and_kept(made)
    assert "damaged" in answer.notes()
    assert abs(count - len(truth.addresses("direct"))) <= 3


@pytest.mark.quick("cyclic-tcache")
@pytest.mark.parametrize("mode", ["cyclic-tcache", "cyclic-fastbin", "wild-tcache"])
def test_free_lists_that_go_round_or_astray(mode: str) -> None:
    made = take("corrupt", mode=mode)
    answer, count, truth = direct_and_kept(made)
    assert "free lists are damaged" in answer.notes()
    assert abs(count - len(truth.addresses("direct"))) <= 10  # those that were on the list beyond the damage


def test_bins_that_point_anywhere() -> None:
    made = take("corrupt", mode="wild-bins")
    _answer, count, truth = direct_and_kept(made)
    assert count == len(truth.addresses("direct"))


@pytest.fixture(scope="module")
def large() -> Path:
    """Return a core of many blocks."""
    return Cache(_cache.CACHE / "bench").get("mixed", 400_000).core


def _has_mapped(pid: int, path: Path) -> bool:
    """Return whether the process has the file mapped, as the engine maps a core."""
    try:
        return str(path) in Path(f"/proc/{pid}/maps").read_text()
    except OSError:  # the process has ended
        return False


@pytest.mark.quick("0.0", "0.6")
@pytest.mark.parametrize("after", [0.0, 0.1, 0.3, 0.6])
def test_ctrl_c(large: Path, after: float) -> None:
    """dmods ends at once with status 130, or had already ended. It prints nothing else."""
    argv = [sys.executable, "-m", "dmods", "findleaks", "-d", str(large)]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # The interrupt must not come while Python starts, which takes any time on a busy machine. It comes after the core
    # is mapped.
    while process.poll() is None and not _has_mapped(process.pid, large):
        time.sleep(0.005)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=HANG)
    assert process.returncode in (0, 130, -signal.SIGINT), err
    if process.returncode == 130:
        assert err == "interrupted\n"


def test_addresses_that_no_word_holds() -> None:
    """Sums of a dump's values may be any number. Such an address is not mapped, and nothing is raised."""
    image = Image([], [], [(0x1000, b"abc")])
    assert image.read(0x1001, 9) == b"bc"
    assert image.read(-8, 8) == image.read(1 << 64, 8) == image.read((1 << 64) - 1, 8) == b""
    assert image.covered(0, 1 << 70) == [(0x1000, 0x1003)]
    assert image.covered(0x1003, 0x1001) == image.covered(1 << 70, 1 << 71) == []
