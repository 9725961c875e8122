"""The registers of running tasks, from the dump's notes, against those that drgn unwinds from."""

from __future__ import annotations

import pytest

from drgnext.kernel.dump.cpu_notes import CpuNote, CpuNotes, read_cpu_notes
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.stacks.threads import Threads
from fixtures import kernel
from tests.kernel.crashed import open_program


@pytest.mark.parametrize(
    ("release", "crash", "dump", "sure"),
    [
        ("6.1", "sysrq", "qemu", True),
        ("6.1", "null", "kexec", True),
        ("6.12", "softirq", "kexec", True),
        # QEMU writes the notes of arm64 as a kernel does, with other pids.
        ("6.1-arm64", "sysrq", "qemu", False),
    ],
)
def test_they_are_drgns(release: str, crash: str, dump: str, sure: bool) -> None:
    guest = kernel.guest(release, crash, dump=dump)
    threads = Threads(Kernel(open_program(guest, modules=False)))
    running = [task for task in threads.tasks.all() if task.on_cpu]
    assert running
    noted = read_cpu_notes(str(guest.vmcore))
    assert [noted.running(task.pid, threads.cpu_of(task)) is not None for task in running] == [sure] * len(running)
    for task in running:
        ours, drgns = threads._running(task), threads._running_by_drgn(task)
        assert ours is not None
        assert drgns is not None
        assert (ours.pc, ours.sp, ours.exact, ours.found) == (drgns.pc, drgns.sp, drgns.exact, drgns.found)
        common = [name for name in threads.machine.registers if name in drgns.registers]
        assert [ours.registers.get(name) for name in common] == [drgns.registers[name] for name in common]
        assert [name for name in threads.machine.registers if name in ours.registers] == common


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
