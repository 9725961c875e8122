"""The auditor's tables under the sanitizers, and in a process that is stopped at any moment."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest

from fixtures import _cache
from fixtures.limits import HANG
from tests.audit.auditor import HERE, ROOT, Tables, compiled, environment

RECORDING = 2  # DMODS_AUDIT_RECORDING (audit/format.h)
HOOKS = {"malloc.c", "cxx.c", "mmap.c", "ends.c"}  # the sanitizer hooks the same functions


_ANOTHER = pytest.mark.thorough("each sanitizer is tested with another setting")


@pytest.mark.quick("thread-audit,log=100000,contents=32")
@pytest.mark.parametrize(
    ("sanitizer", "words"),
    [
        ("thread", "audit,log=100000,contents=32"),
        ("address,undefined", "sample=8k"),
        pytest.param("thread", "sample=8k", marks=_ANOTHER),
        pytest.param("address,undefined", "audit,log=100000,contents=32", marks=_ANOTHER),
    ],
)
def test_sanitizers(tmp_path: Path, sanitizer: str, words: str) -> None:
    sources = [path for path in (ROOT / "audit").rglob("*.c") if path.name not in HOOKS]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-fno-sanitize-recover=all", f"-fsanitize={sanitizer}"]
    subprocess.run(["gcc", *flags, "-pthread", "-o", tmp_path / "unit", HERE / "unit.c", *sources], check=True)
    variables = {**os.environ, "DMODS_AUDIT": words}
    done = subprocess.run([tmp_path / "unit"], env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_forgotten_rules(tmp_path: Path) -> None:
    """A rule from before code was unloaded is never used, though other threads notice the unloading as well."""
    sources = [path for path in (ROOT / "audit").rglob("*.c") if path.name not in HOOKS]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread"]
    program = tmp_path / "forgotten"
    subprocess.run(["gcc", *flags, "-o", program, HERE / "forgotten.c", *sources], check=True)
    for _ in range(1 if os.environ.get(_cache.QUICK) else 3):  # each run has another order of the threads
        variables = {**os.environ, "DMODS_AUDIT": "audit"}
        done = subprocess.run([program], env=variables, capture_output=True, text=True, check=False)
        stale, generations = map(int, done.stdout.split())
        assert (stale, done.stderr) == (0, "")
        assert generations > 1000


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)


def _is_recorded(pid: int) -> bool:
    """Return whether the auditor has begun, and its tables have so many blocks and entries as the program keeps."""
    try:
        tables = Tables(pid)
    except (StopIteration, OSError, struct.error, AssertionError):  # the loader is still at work
        return False
    try:
        return tables.state == RECORDING and len(tables.blocks()) > 500 and len(tables.transactions()) >= 45
    finally:
        os.close(tables.memory)


def test_at_any_moment(tmp_path: Path) -> None:
    """A process that is stopped at random, often inside the auditor, has whole records, and no two blocks overlap."""
    program = compiled("ledger.c", tmp_path / "ledger")
    child = subprocess.Popen([program, tmp_path / "told", "4", "100000000", "0"], env=environment("audit,log=50"))
    chance = random.Random(4)
    try:
        limit = time.monotonic() + HANG
        recorded = False
        while not recorded:  # on a busy machine any time may pass until it has begun
            assert time.monotonic() < limit, "the auditor recorded nothing"
            time.sleep(0.05)
            _stop(child)
            recorded = _is_recorded(child.pid)
            child.send_signal(signal.SIGCONT)
        for _ in range(8):
            time.sleep(chance.random() / 20)
            _stop(child)
            tables = Tables(child.pid)
            blocks = sorted(tables.blocks())
            assert len(blocks) > 500
            assert all(block.tid != 0 and block.stack and not block.truncated for block in blocks)
            assert all(a.address + a.size <= b.address for a, b in zip(blocks, blocks[1:]))
            log = [one.sequence for one in tables.transactions()]
            assert len(log) >= 45  # a few were being written
            assert len(set(log)) == len(log)
            os.close(tables.memory)
            child.send_signal(signal.SIGCONT)
    finally:
        child.kill()
        child.wait()
