"""The registers of running tasks, from the dump's notes, against those that drgn unwinds from."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from drgnext.kernel.dump.cpu_notes import CpuNote, CpuNotes, read_cpu_notes
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.stacks.threads import Threads
from fixtures import kernel
from tests.kernel.crashed import open_program


@pytest.mark.parametrize(
    ("release", "crash", "dump"),
    [
        ("6.1", "sysrq", "qemu"),
        ("6.1", "null", "kexec"),
        ("6.12", "softirq", "kexec"),
        ("6.1-arm64", "sysrq", "qemu"),
    ],
)
def test_they_are_drgns(release: str, crash: str, dump: str) -> None:
    guest = kernel.guest(release, crash, dump=dump)
    threads = Threads(Kernel(open_program(guest, modules=False)))
    running = [task for task in threads.tasks.all() if task.on_cpu]
    assert running
    noted = read_cpu_notes(str(guest.vmcore))
    assert noted.by_kernel == (dump == "kexec")
    assert all(noted.running(task.pid, threads.cpu_of(task)) for task in running)
    for task in running:
        ours, drgns = threads._running(task), threads._running_by_drgn(task)
        assert ours is not None
        assert drgns is not None
        assert (ours.pc, ours.sp, ours.exact, ours.found) == (drgns.pc, drgns.sp, drgns.exact, drgns.found)
        common = [name for name in threads.machine.registers if name in drgns.registers]
        assert [ours.registers.get(name) for name in common] == [drgns.registers[name] for name in common]
        assert [name for name in threads.machine.registers if name in ours.registers] == common


def test_qemus_numbers_of_arm64_cpus_are_no_pids(tmp_path: Path) -> None:
    """A kernel writes no floating-point registers. QEMU does, and numbers the CPUs from 1 on."""
    for by_kernel in (True, False):
        notes = b""
        for number in range(2):
            notes += _note(b"CORE", 1, struct.pack("<32xi76x34Qi4x", number + 1, *range(34), 0))
            notes += b"" if by_kernel else _note(b"CORE", 2, bytes(528))
        dump = tmp_path / f"dump.{by_kernel}"
        header = struct.pack("<4s5B7x2HI3QI6H", b"\x7fELF", 2, 1, 1, 0, 0, 4, 183, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
        dump.write_bytes(header + struct.pack("<2I6Q", 4, 0, 120, 0, 0, len(notes), len(notes), 4) + notes)
        noted = read_cpu_notes(str(dump))
        assert [(one.number, one.pid, one.sp, one.pc) for one in noted.cpus] == [(0, 1, 31, 32), (1, 2, 31, 32)]
        assert noted.by_kernel == by_kernel
        assert noted.of(1, 1) == (noted.cpus[0] if by_kernel else None)


def _note(name: bytes, kind: int, data: bytes) -> bytes:
    return struct.pack("<3I8s", len(name) + 1, len(data), kind, name) + data


def test_a_note_that_may_be_of_another_cpu_does_not_count() -> None:
    cpus = [CpuNote(number, pid, 0x1000, 0x2000, {}) for number, pid in enumerate((0, 7, 0))]
    of_kernel, of_qemu = CpuNotes(cpus, True), CpuNotes(cpus, False)
    assert of_kernel.running(7, 1) == cpus[1]
    assert of_kernel.running(0, 2) == cpus[2]
    # A CPU was offline: the notes behind its number are those of the next CPUs.
    assert of_kernel.running(7, 0) is None
    assert of_kernel.running(8, 1) is None
    assert of_qemu.running(8, 1) == cpus[1]
    assert [notes.running(7, cpu) for notes in (of_kernel, of_qemu) for cpu in (None, -1, 3)] == [None] * 6
