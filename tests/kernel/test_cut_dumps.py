"""Dumps of a crash kernel that were cut: what is left is told, and what is lost is not guessed.

The witness is the whole dump's guest: it died of an oops, and its console says how.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drgnext.kernel.crash.klog import PanicLog, Record
from drgnext.kernel.crash.outcome import SENTENCES, has_died
from fixtures import answers, kernel

GUEST = ("6.1", "null")
CRASHED = {"CRASHTIME": "1795357201"}
SILENT = PanicLog(None, None, (), (), None, None)


def cut(form: str, share: int, work: Path) -> Path:
    """Return a copy of the dump by kexec that ends after ``share`` percent of its bytes."""
    guest = kernel.guest(*GUEST, dump="kexec")
    whole = guest.vmcore if form == "elf" else guest.dumped("-z", "-d", "31")
    copy = work / f"vmcore.{form}"
    subprocess.run(["cp", "--sparse=always", str(whole), str(copy)], check=True)
    os.truncate(copy, whole.stat().st_size * share // 100)
    return copy


def asked(dump: Path, name: str, symbols: bool) -> dict[str, Any]:
    """Return what `dmods NAME DUMP --json` prints, with vmlinux or without."""
    given = ("-s", kernel.guest(*GUEST, dump="kexec").vmlinux) if symbols else ()
    done = answers.dmods(name, dump, *given, "--architecture=x86_64", "--json")
    assert done.stdout, done.stderr
    return answers._object(done.stdout)


@pytest.mark.parametrize("share", [90, 95])
@pytest.mark.parametrize("symbols", [False, True], ids=["bare", "vmlinux"])
def test_a_lost_log_does_not_say_that_the_kernel_lived(share: int, symbols: bool, tmp_path: Path) -> None:
    dump = cut("kdump", share, tmp_path)
    (record,) = answers.by_name(asked(dump, "panicinfo", symbols))["panicinfo"]
    assert record["message"] == SENTENCES[True]


@pytest.mark.parametrize("symbols", [False, True], ids=["bare", "vmlinux"])
def test_triage_finds_the_crash_without_its_log(symbols: bool, tmp_path: Path) -> None:
    answer = asked(cut("kdump", 95, tmp_path), "triage", symbols)
    found = [row for row in answers.by_name(answer)["findings"] if row["check"] == "panic"]
    assert [row["what"].partition(", in task")[0] for row in found] == [SENTENCES[True]]


@pytest.mark.parametrize(
    ("info", "whole", "panic_cpu", "expected"),
    [
        (CRASHED, False, None, True),
        (CRASHED, True, -1, True),
        ({}, False, 3, True),
        ({}, False, -1, False),
        ({}, True, None, False),
        ({}, False, None, None),
    ],
)
def test_what_proves_a_death(info: dict[str, str], whole: bool, panic_cpu: int, expected: bool) -> None:
    assert has_died(SILENT, info, [Record(1.0, "Linux version 6.1")], whole, panic_cpu) is expected
    assert has_died(SILENT._replace(panic="x"), info, [], whole, panic_cpu)


def test_a_log_without_records_proves_nothing() -> None:
    assert has_died(SILENT, {}, [], True) is None
