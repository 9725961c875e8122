"""The words of DMODS_AUDIT."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.audit.auditor import Tables, compiled, environment, size_of, waiting


@pytest.fixture(scope="module")
def misuse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("misuse.c", tmp_path_factory.mktemp("misuse") / "misuse")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("overrun", "overrun: the block at {} of 100 bytes was written beyond its end, at offset 100"),
        ("overrun-realloc", "overrun: the block at {} of 100 bytes was written beyond its end, at offset 107"),
        ("double", "double free: the block at {} had been freed before"),
        ("interior", " lies inside the block at {}"),
        ("foreign", " is no block"),
    ],
)
def test_guards_stop_misuse(misuse: Path, name: str, says: str) -> None:
    done = subprocess.run([misuse, name], env=environment("audit,guards"), capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr.startswith("dmods audit: ")
    assert done.stderr.endswith(says.format(done.stdout.strip()) + "\n")


def test_guards_do_not_stop_correct_programs(misuse: Path) -> None:
    for name in ("patterns", ""):
        done = subprocess.run(
            [misuse, name], env=environment("audit,guards"), capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_unknown_words(misuse: Path) -> None:
    for words in ("adit", "audit=0", "audit=65", "audit=x", "sample=", "guards=1", "log=1x", "sample=99999999g"):
        done = subprocess.run([misuse], env=environment(words), capture_output=True, text=True, check=False)
        assert done.returncode == 0
        assert done.stderr.startswith(f"dmods audit: DMODS_AUDIT={words} is not understood")


def test_log_and_contents(tmp_path: Path) -> None:
    program, told = compiled("transactions.c", tmp_path / "transactions"), tmp_path / "told"
    with waiting([program, told], told, environment("audit,log=1k,contents=16")) as (pid, lines):
        log = Tables(pid).transactions()
    functions = [int(word, 16) for word in lines[0].split()[1:]]
    sizes = [size_of(program, name) for name in ("taker", "changer", "giver")]

    def function(pc: int) -> str:
        for name, start, size in zip(("taker", "changer", "giver"), functions, sizes):
            if start < pc <= start + size:
                return name
        return ""

    expected = [(words[0] == "given", int(words[1], 16), int(words[2])) for words in map(str.split, lines[1:-1])]
    ours = [
        one
        for one in log
        if (one.stack and function(one.stack[0])) or (one.alloc_stack and function(one.alloc_stack[0]))
    ]
    assert [(one.freed, one.address, one.size) for one in ours] == expected
    number = -1
    for one in ours:
        allocated_in = "changer" if one.size >= 4000 else "taker"
        if not one.freed:
            assert function(one.stack[0]) == allocated_in
            continue
        number = one.size - (4000 if one.size >= 4000 else 40)
        assert function(one.alloc_stack[0]) == allocated_in
        by_realloc = number % 2 == 1 and one.size < 4000
        assert function(one.stack[0]) == ("changer" if by_realloc else "giver")
        assert one.contents.split(b"\0")[0] == b"block %d" % number
        assert len(one.contents) == 16
    assert number == 49


def test_a_log_that_is_too_short_keeps_the_last(tmp_path: Path) -> None:
    program, told = compiled("transactions.c", tmp_path / "transactions"), tmp_path / "told"
    with waiting([program, told], told, environment("audit,log=10")) as (pid, lines):
        log = Tables(pid).transactions()
    last = [int(words[1], 16) for words in map(str.split, lines[-6:-1])]
    assert [one.address for one in log[-5:]] == last
    assert [one.sequence for one in log] == list(range(log[0].sequence, log[0].sequence + 10))


@pytest.mark.quick("65536")
@pytest.mark.parametrize("mean", [4096, 65536])
def test_samples_stand_for_all(tmp_path: Path, mean: int) -> None:
    """Weighted samples estimate the live blocks of every size without bias. Freed blocks have no record."""
    program, told = compiled("sizes.c", tmp_path / "sizes"), tmp_path / "told"
    with waiting([program, told, 40_000_000], told, environment(f"sample={mean}")) as (pid, lines):
        tables = Tables(pid)
        assert tables.sample == mean
        blocks = tables.blocks()
        lost = tables.figures[1]
    from math import exp, sqrt

    known = {int(line.split()[0]): int(line.split()[1]) for line in lines[1:-1]}
    # A sample may also be one of stdio's own blocks: a buffer, or a FILE with its lock (472 bytes in glibc).
    assert {block.size for block in blocks} - {4096, 1 << 16, 1024, 472} <= set(known)
    for size, count in known.items():
        chance = 1 - exp(-size / mean)
        taken = sum(block.size == size for block in blocks)
        deviation = sqrt(count * chance * (1 - chance))
        assert abs(taken - count * chance) <= 5 * deviation + 1
    assert lost <= len(blocks) / 1000
    assert len({block.address for block in blocks}) == len(blocks)
