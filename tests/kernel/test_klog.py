"""The first cause of death, from logs of real kernels (shortened)."""

from __future__ import annotations

from drgnext.kernel.crash.klog import PanicLog, Record, read_panic_log


def log(*lines: str) -> PanicLog:
    """Return a log with these lines, each with a time before it: "8.1 text"."""
    split = (line.split(" ", 1) for line in lines)
    return read_panic_log([Record(float(time), text) for time, text in split])


OOPS = (
    "8.1 BUG: kernel NULL pointer dereference, address: 0000000000000028",
    "8.1 #PF: supervisor write access in kernel mode",
    "8.1 #PF: error_code(0x0002) - not-present page",
    "8.1 Oops: 0002 [#1] PREEMPT SMP NOPTI",
    "8.2 RIP: 0010:guest_crash_null+0xa/0x20 [dmods_guest]",
    "8.3 ---[ end trace 0000000000000000 ]---",
)


def test_the_oops_before_a_fatal_exception() -> None:
    found = log("1.0 Linux version 6.1", *OOPS, "8.4 Kernel panic - not syncing: Fatal exception in interrupt")
    assert found.message == "BUG: kernel NULL pointer dereference, address: 0000000000000028"
    assert found.panic == "Fatal exception in interrupt"
    assert (found.address, found.where) == (0x28, "guest_crash_null+0xa/0x20 [dmods_guest]")
    assert found.details[-1] == "Oops: 0002 [#1] PREEMPT SMP NOPTI"
    assert found.earlier == ()


def test_an_oops_that_the_kernel_survived_is_not_the_cause_of_a_later_panic() -> None:
    found = log(*OOPS, "5000.0 sysrq: Trigger a crash", "5000.1 Kernel panic - not syncing: sysrq triggered crash")
    assert found.message == found.panic == "sysrq triggered crash"
    assert [record.time for record in found.earlier] == [8.1]
    assert found.address is None


def test_the_last_of_two_oopses() -> None:
    second = (
        "99.0 general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#2] SMP",
        "99.1 RIP: 0010:other+0x1/0x2",
        "99.2 ---[ end trace 0000000000000000 ]---",
        "99.3 Kernel panic - not syncing: Fatal exception",
    )
    found = log(*OOPS, *second)
    assert found.message is not None
    assert found.message.startswith("general protection fault")
    assert (found.address, found.where) == (0xDEAD000000000100, "other+0x1/0x2")
    assert len(found.earlier) == 1


def test_an_oops_inside_an_oops_came_out_of_it() -> None:
    nested = (*OOPS[:4], "8.15 BUG: unable to handle page fault for address: ffffc90000000000", *OOPS[4:])
    found = log(*nested, "8.4 Kernel panic - not syncing: Fatal exception")
    assert found.message == OOPS[0][4:]
    assert found.earlier == ()


def test_init_killed_by_an_oops() -> None:
    found = log(*OOPS, "8.5 Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b")
    assert found.message == OOPS[0][4:]
    later = log(*OOPS, "777.0 Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100")
    assert later.message == later.panic


def test_kernel_bug_and_arm64() -> None:
    bug = (
        "4.7 ------------[ cut here ]------------",
        "4.7 kernel BUG at mm/slub.c:89!",
        "4.7 invalid opcode: 0000 [#1] PREEMPT SMP NOPTI",
        "4.8 ---[ end trace 0000000000000000 ]---",
        "4.8 Kernel panic - not syncing: Fatal exception",
    )
    assert log(*bug).message == "kernel BUG at mm/slub.c:89!"
    arm = (
        "9.0 Unable to handle kernel NULL pointer dereference at virtual address 0000000000000028",
        "9.0 Mem abort info:",
        "9.0   ESR = 0x0000000096000045",
        "9.0 Internal error: Oops: 0000000096000045 [#1] PREEMPT SMP",
        "9.0 pc : poke+0x18/0x30 [crash]",
        "9.0 ---[ end trace 0000000000000000 ]---",
        "9.0 Kernel panic - not syncing: Oops: Fatal exception",
    )
    found = log(*arm)
    assert (found.address, found.where) == (0x28, "poke+0x18/0x30 [crash]")
    assert found.message == arm[0][4:]


def test_lockups_stalls_and_warnings() -> None:
    cases = [
        ("watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [spin:77]", "softlockup: hung tasks"),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "Hard LOCKUP"),
        ("INFO: task nfsd:99 blocked for more than 120 seconds.", "hung_task: blocked tasks"),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "RCU Stall"),
        ("WARNING: CPU: 0 PID: 1 at kernel/x.c:1 f+0x1/0x2", "kernel: panic_on_warn set ..."),
        ("Uhhuh. NMI received for unknown reason 31 on CPU 0.", "NMI: Not continuing"),
    ]
    for first, last in cases:
        found = log("1.0 something", f"500.0 {first}", "500.1 more", f"500.2 Kernel panic - not syncing: {last}")
        assert (found.message, found.panic) == (first, last)
    # This is not the cause of the later death, which has another reason.
    later = log(f"500.0 {cases[0][0]}", "900.0 Kernel panic - not syncing: sysrq triggered crash")
    assert later.message == "sysrq triggered crash"


def test_no_panic() -> None:
    assert log("1.0 Linux version 6.1") == PanicLog(None, None, (), (), None, None)
    assert log() == PanicLog(None, None, (), (), None, None)
    # The kernel was dumped while it was printing.
    assert log(*OOPS[:3]).message == OOPS[0][4:]
    survived = log(*OOPS)
    assert survived.message is None
    assert len(survived.earlier) == 1


def test_of_hung_tasks_the_first_and_no_address_in_user_space() -> None:
    found = log(
        "100.0 INFO: task before:9 blocked for more than 120 seconds.",
        "242.1 INFO: task first:142 blocked for more than 120 seconds.",
        "242.1 Call Trace:",
        "242.2 RIP: 0033:0x44bb20",
        "242.2 INFO: task second:143 blocked for more than 120 seconds.",
        "242.3 Kernel panic - not syncing: hung_task: blocked tasks",
    )
    assert found.message == "INFO: task first:142 blocked for more than 120 seconds."
    assert found.where is None


def test_the_first_fault_with_its_task_and_frames() -> None:
    lines = (
        *OOPS[:4],
        "8.1 CPU: 3 UID: 0 PID: 142 Comm: a name Kdump: loaded Tainted: G           OE      6.12 #1",
        "8.2 RIP: 0010:guest_crash_null+0xa/0x20 [dmods_guest]",
        "8.2 Call Trace:",
        "8.2  <IRQ>",
        "8.2  ? page_fault_oops+0xf9/0x200",
        "8.2  timer+0x5/0x10 [other 0123abcd]",
        "8.2  </IRQ>",
        "8.2  <TASK>",
        "8.2 RIP: 0010:interrupted.cold+0x3/0x9",
        "8.2  kthread+0xda/0x100",
        "8.2  </TASK>",
        "8.2 Modules linked in: other",
        "8.2  not_a_frame+0x1/0x2",
        OOPS[-1],
    )
    first = log(*lines, "50.0 Kernel panic - not syncing: sysrq triggered crash").first
    assert first is not None
    assert (first.time, first.message, first.cpu, first.pid, first.comm) == (8.1, OOPS[0][4:], 3, 142, "a name")
    assert [line.partition(" ")[0] for line in first.details] == ["#PF:", "#PF:", "Oops:"]
    assert str(first.pc) == "dmods_guest`guest_crash_null+0xa"
    assert [str(place) for place in first.frames] == ["other`timer+0x5", "interrupted.cold+0x3", "kthread+0xda"]
    assert log(*lines, "8.3 Kernel panic - not syncing: Fatal exception").first is None
