"""Dumps of a crash kernel that were cut: what is left is told, and what is lost is not guessed.

The witness is the whole dump's guest: it died of an oops, and its console says how.
"""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drgnext.kernel.crash.klog import PanicLog
from drgnext.kernel.crash.outcome import SENTENCES, has_died
from drgnext.kernel.crash.records import Record
from drgnext.kernel.dump.cpu_notes import _cpus, read_cpu_notes
from drgnext.kernel.dump.native_reader import read_natively
from fixtures import answers, kernel
from tests.kernel.crashed import call_trace, open_program

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
    """Return what `dmods NAME DUMP --json` prints, with vmlinux or without.

    libkdumpfile maps a compressed dump. As drgn starts, it may reach for a page behind the end: then the kernel ends it
    (SIGBUS, docs/LIMITS.md). That depends on where the cut lies among the pages, so it is moved.
    """
    given = ("-s", kernel.guest(*GUEST, dump="kexec").vmlinux) if symbols else ()
    for _ in range(8):
        done = answers.dmods(name, dump, *given, "--architecture=x86_64", "--json")
        if done.returncode != -signal.SIGBUS:
            break
        os.truncate(dump, dump.stat().st_size - (32 << 10))
    assert done.stdout, done.stderr
    return answers._object(done.stdout)


def test_dmods_reads_what_drgn_reads() -> None:
    """The whole dump, by libkdumpfile and by dmods, at addresses that pages of every size map."""
    from drgn import FaultError
    from drgn.helpers.linux.list import list_for_each_entry
    from drgn.helpers.linux.pid import for_each_task

    guest = kernel.guest(*GUEST, dump="kexec")
    dump = guest.dumped("-z", "-d", "31")
    drgns, mine = (open_program(guest, dump=dump) for _ in range(2))
    read_natively(mine, str(dump))
    tasks = list(for_each_task(drgns))[:40]
    modules = list_for_each_entry("struct module", drgns["modules"].address_of_(), "list")
    places = [drgns[name].address_ for name in ("init_task", "linux_banner", "init_uts_ns")]
    places += [task.value_() for task in tasks]  # the direct map
    places += [task.stack.value_() + (12 << 10) for task in tasks]  # vmalloc
    places += [module.value_() for module in modules]
    assert len(places) > 80
    assert [mine.read(place, 4000) for place in places] == [drgns.read(place, 4000) for place in places]
    with pytest.raises(FaultError):
        mine.read(0xFFFF_7FFF_FFFF_0000, 8)


def possible_messages() -> tuple[str, ...]:
    """Return what may be said of a dump that is cut near its end.

    The kernel's image lies at a random place of the machine's memory, and its log with it: it is lost or not.
    """
    said = re.search(r"BUG: kernel NULL pointer dereference, address: \S+", kernel.guest(*GUEST, dump="kexec").console)
    assert said is not None
    return SENTENCES[True], said[0]


@pytest.mark.quick("bare-95", "vmlinux-90")
@pytest.mark.parametrize("share", [90, 95])
@pytest.mark.parametrize("symbols", [False, True], ids=["bare", "vmlinux"])
def test_a_lost_log_does_not_say_that_the_kernel_lived(share: int, symbols: bool, tmp_path: Path) -> None:
    dump = cut("kdump", share, tmp_path)
    (record,) = answers.by_name(asked(dump, "panicinfo", symbols))["panicinfo"]
    assert record["message"] in possible_messages()


@pytest.mark.quick("bare")
@pytest.mark.parametrize("symbols", [False, True], ids=["bare", "vmlinux"])
def test_triage_finds_the_crash_without_its_log(symbols: bool, tmp_path: Path) -> None:
    answer = asked(cut("kdump", 95, tmp_path), "triage", symbols)
    found = [row for row in answers.by_name(answer)["findings"] if row["check"] == "panic"]
    assert len(found) == 1
    assert found[0]["what"].startswith(possible_messages())


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


def printed(console: str) -> dict[str, int]:
    """Return the registers that the oops printed on the console, by their names here."""
    block = console[console.index("RIP: 0010:") :][:2000]
    found: dict[str, int] = {}
    for name, value in re.findall(r"\b(R[A-Z0-9]{2}|EFLAGS): (?:0018:)?([0-9a-f]{8,16})\b", block):
        found.setdefault(re.sub(r"^r0", "r", name.lower()), int(value, 16))
    return found


@pytest.mark.quick("bare-90", "vmlinux-50")
@pytest.mark.parametrize("share", [50, 90])
@pytest.mark.parametrize("symbols", [False, True], ids=["bare", "vmlinux"])
def test_the_notes_and_the_log_are_told_whatever_else_is_lost(share: int, symbols: bool, tmp_path: Path) -> None:
    guest = kernel.guest(*GUEST, dump="kexec")
    tables = answers.by_name(asked(cut("elf", share, tmp_path), "panicinfo", symbols))
    (record,) = tables["panicinfo"]
    said = re.search(r"CPU: (\d+) PID: (\d+) Comm: (\S+)", guest.console)
    assert said is not None
    assert (record["cpu"], record["pid"], record["name"]) == (int(said[1]), int(said[2]), said[3])
    assert int(record["pc"], 16) == guest.truth["at_null"]
    assert record["where"].startswith("dmods_guest`guest_crash_null+")
    registers = printed(guest.console)
    assert len(registers) >= 16
    assert {name: int(record[name], 16) for name in registers} == registers
    assert [row["where"].rpartition("`")[2] for row in tables["log_frames"]] == call_trace(guest.console, "Oops")


@pytest.mark.quick("bare-kdump", "vmlinux-elf")
@pytest.mark.parametrize("form", ["elf", "kdump"])
@pytest.mark.parametrize("symbols", [False, True], ids=["bare", "vmlinux"])
def test_notes_alone_show_all_cpus(form: str, symbols: bool, tmp_path: Path) -> None:
    """No memory of the kernel is left, and so nothing says which CPU died."""
    guest = kernel.guest(*GUEST, dump="kexec")
    tables = answers.by_name(asked(cut(form, 5, tmp_path), "panicinfo", symbols))
    rows = {row["pid"]: row for row in tables["cpus"]}
    assert sorted(rows) == [0, 1]
    assert int(rows[1]["pc"], 16) == guest.truth["at_null"]
    # The table of symbols names the idle CPU's instruction; nothing in the dump's memory is needed.
    assert bool(rows[0].get("where")) == symbols


@pytest.mark.quick("bare")
@pytest.mark.parametrize("symbols", [False, True], ids=["bare", "vmlinux"])
def test_triage_names_task_and_frames_that_only_the_log_has(symbols: bool, tmp_path: Path) -> None:
    guest = kernel.guest(*GUEST, dump="kexec")
    answer = asked(cut("elf", 90, tmp_path), "triage", symbols)
    (crash,) = answers.by_name(answer)["crash"]
    assert "init, pid 1" in str(crash)
    assert all(name in str(answer) for name in call_trace(guest.console, "Oops"))
    (found,) = (row for row in answers.by_name(answer)["findings"] if row["check"] == "panic")
    assert "guest_crash_null+" in found["what"]
    assert found["what"].endswith("in task init (1)")


def test_notes_of_qemu_have_no_pids() -> None:
    """QEMU counts its CPUs from 1 there. Its CPU 0 is no task with pid 1, and stands in panic()."""
    noted = read_cpu_notes(str(kernel.guest(*GUEST).vmcore))
    assert len(noted.cpus) == 2
    assert noted.of(1, 0) is None


def test_notes_that_lie() -> None:
    head = struct.pack("<III", 5, 336, 1) + b"CORE\0\0\0\0"
    for data in (b"", head, head + bytes(20), struct.pack("<III", 5, 1 << 31, 1) + b"CORE\0\0\0\0" + bytes(400)):
        assert len(_cpus(62, [data]).cpus) <= 1
    assert _cpus(3, [head + bytes(336)]).cpus == ()
    assert len(_cpus(62, [(head + bytes(336)) * 9000]).cpus) == 8192
    idle = _cpus(62, [(head + bytes(336)) * 2])
    assert idle.of(0, None) is None
    assert idle.of(0, 1) == idle.cpus[1]
    assert idle.of(7, 1) is None
