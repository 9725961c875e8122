"""The first cause of death, from logs of real kernels (shortened)."""

from __future__ import annotations

from typing import Optional

import pytest

from drgnext.kernel.crash.klog import PanicLog, read_panic_log
from drgnext.kernel.crash.records import Record


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


SENTENCES = {
    "overflow in a string": ("detected buffer overflow in memset", "kernel BUG at lib/string_helpers.c:1027!"),
    "damaged list": (
        "list_del corruption. prev->next should be ffff8880045d1a08, but was 4141414141414141. (prev=ffff8880045d1900)",
        "kernel BUG at lib/list_debug.c:59!",
    ),
    "copy to a program": (
        "usercopy: Kernel memory exposure attempt detected from SLUB object 'kmalloc-8' (offset 0, size 100)!",
        "kernel BUG at mm/usercopy.c:101!",
    ),
    "count of a page": (
        "page dumped because: VM_BUG_ON_PAGE(page_ref_count(page) == 0)",
        "kernel BUG at include/linux/mm.h:799!",
    ),
    "full buffer": (
        "skbuff: skb_over_panic: text:ffffffffc0 len:100 put:100",
        "kernel BUG at net/core/skbuff.c:113!",
    ),
}


@pytest.mark.parametrize("kind", SENTENCES)
def test_the_kernels_own_sentence_before_a_bug(kind: str) -> None:
    sentence, bug = SENTENCES[kind]
    oops = (f"4.6 {sentence}", "4.7 ------------[ cut here ]------------", f"4.7 {bug}", *BUG_TAIL)
    found = log("4.6 a driver is ready", *oops, "4.8 Kernel panic - not syncing: Fatal exception")
    assert (found.message, found.details[0]) == (sentence, bug)
    assert found.where == "f+0x1/0x2"
    assert found.death is not None
    assert found.death.message == sentence
    survived = log(*oops, "500.0 Kernel panic - not syncing: sysrq triggered crash")
    assert survived.first is not None
    assert (survived.first.message, survived.earlier[0].text) == (sentence, sentence)


BUG_TAIL = (
    "4.7 invalid opcode: 0000 [#1] PREEMPT SMP NOPTI",
    "4.7 RIP: 0010:f+0x1/0x2",
    "4.8 ---[ end trace 0000000000000000 ]---",
)


def test_a_line_before_a_bug_that_is_no_sentence_of_it() -> None:
    bug = "kernel BUG at mm/slub.c:89!"
    last = "4.8 Kernel panic - not syncing: Fatal exception"
    assert log("4.69 eth0: link is up", f"4.7 {bug}", *BUG_TAIL, last).message == bug
    assert log("1.0 usercopy: of long ago", f"4.7 {bug}", *BUG_TAIL, last).message == bug
    assert log("4.6 ---[ end trace 0000000000000000 ]---", f"4.7 {bug}", *BUG_TAIL, last).message == bug
    # Another task printed it.
    other = [Record(4.69, "usercopy: x", 7), *(Record(4.7, line[4:], 1) for line in (f"4.7 {bug}", *BUG_TAIL, last))]
    assert read_panic_log(other).message == bug


@pytest.mark.parametrize("level", [0, 2, 4, None])
@pytest.mark.parametrize("first", ["kernel BUG at drivers/ours.c:5!", OOPS[0][4:], "Oops: general protection fault"])
@pytest.mark.parametrize(
    "before", ["LED done", "ours: a fan stands still", "no assertion failed", "CPU: Missing ENDBR"]
)
def test_another_line_of_the_task_before_an_oops_is_not_its_message(
    before: str, first: str, level: Optional[int]
) -> None:
    """Whatever its level is: an emergency may be one of something else."""
    lines = (before, first, *(line[4:] for line in BUG_TAIL), PANIC)
    records = [Record(4.7, text, 1, level if n == 0 else 4) for n, text in enumerate(lines)]
    found = read_panic_log(records)
    assert found.message == first
    assert before not in found.details


@pytest.mark.parametrize(
    "sentence",
    ["XFS (dm-0): Assertion failed: x == 1, file: fs/xfs/xfs_inode.c, line: 5", "Assertion failure in jbd2_run() at 5"],
)
def test_an_assertion_of_a_file_system_before_a_bug_is_its_sentence(sentence: str) -> None:
    lines = (sentence, "kernel BUG at fs/ours.c:5!", *(line[4:] for line in BUG_TAIL), PANIC)
    assert read_panic_log([Record(4.7, text, 1, 0) for text in lines]).message == sentence


PANIC = "Kernel panic - not syncing: Fatal exception"


def test_a_fault_that_the_kernel_names_first() -> None:
    sentence = "kernel tried to execute NX-protected page - exploit attempt? (uid: 0)"
    fault = "BUG: unable to handle page fault for address: ffffc90000013d50"
    found = log(f"8.1 {sentence}", f"8.1 {fault}", *OOPS[1:], f"8.4 {PANIC}")
    assert found.message == sentence
    assert found.details[0] == fault
    assert (found.address, found.where) == (0xFFFFC90000013D50, "guest_crash_null+0xa/0x20 [dmods_guest]")


def test_a_warning_says_its_sentence() -> None:
    sentence = "refcount_t: underflow; use-after-free."
    for warning in (
        "WARNING: CPU: 0 PID: 1 at lib/refcount.c:28 refcount_warn_saturate+0xba/0x110",
        "WARNING: lib/refcount.c:28 at refcount_warn_saturate+0xba/0x110, CPU#0: init/1",
    ):
        lines = ("4.7 ------------[ cut here ]------------", f"4.7 {sentence}", f"4.7 {warning}")
        found = log(*lines, "4.8 Kernel panic - not syncing: kernel: panic_on_warn set ...")
        assert (found.message, found.details[0]) == (sentence, warning)
        bare = log(lines[0], lines[2], "4.8 Kernel panic - not syncing: kernel: panic_on_warn set ...")
        assert bare.message == warning


def test_a_warning_and_then_a_bug_in_the_same_file() -> None:
    """So 6.9 and later tell of a buffer overflow."""
    sentence = "memset: detected buffer overflow: 16 byte write of buffer size 8"
    lines = [
        "4.7 ------------[ cut here ]------------",
        f"4.7 {sentence}",
        "4.7 WARNING: CPU: 0 PID: 1 at lib/string_helpers.c:1035 __fortify_report+0x45/0x50",
        *("4.7 Call Trace:", "4.7  <TASK>") * 20,
        "4.7 ---[ end trace 0000000000000000 ]---",
        "4.7 ------------[ cut here ]------------",
        "4.7 kernel BUG at lib/string_helpers.c:1043!",
        *BUG_TAIL,
        f"4.8 {PANIC}",
    ]
    assert log(*lines).message == sentence
    lines[-5] = "4.7 kernel BUG at mm/slub.c:89!"
    assert log(*lines).message == lines[-5][4:]


def by(caller: int, *lines: str) -> list[Record]:
    """Return lines of one caller, as log() splits them."""
    split = (line.split(" ", 1) for line in lines)
    return [Record(float(time), text, caller) for time, text in split]


BUG_OF_OTHER = ("8.11 ------------[ cut here ]------------", "8.11 kernel BUG at drivers/other.c:7!")


@pytest.mark.parametrize("at", range(0, len(OOPS), 2))
def test_two_cpus_that_oops_at_once(at: int) -> None:
    """CPU 1 waits for CPU 0, which holds the lock of die() and panics."""
    mine = by(100, *OOPS)
    records = [*mine[:at], *by(200, *BUG_OF_OTHER), *mine[at:], *by(100, f"8.4 {PANIC}", "8.4 Kernel Offset: 0x1")]
    found = read_panic_log(records)
    assert found.message == OOPS[0][4:]
    assert (found.address, found.where) == (0x28, "guest_crash_null+0xa/0x20 [dmods_guest]")
    assert (found.first, found.earlier) == (None, ())
    assert [one.text for one in found.beside] == ["kernel BUG at drivers/other.c:7!"]
    # The crash kernel starts before a line of panic(). The dump says which task died.
    by_kexec = [record for record in records if "Kernel" not in record.text and "end trace" not in record.text]
    assert read_panic_log(by_kexec, [100]).message == OOPS[0][4:]
    assert read_panic_log(by_kexec, [200]).message == "kernel BUG at drivers/other.c:7!"
    assert read_panic_log(by_kexec).message == OOPS[0][4:]


def test_two_whole_oopses_that_alternate() -> None:
    """The other CPU's is whole, and ends after the panic's began."""
    other = by(200, "8.09 kernel BUG at drivers/other.c:7!", *BUG_TAIL)
    other = [record._replace(time=8.1) for record in other]
    mixed = [line for pair in zip(by(100, *OOPS), [*other, *by(200, "8.3 a", "8.3 b")]) for line in pair]
    found = read_panic_log([*mixed, *by(100, f"8.4 {PANIC}")])
    assert (found.message, found.first) == (OOPS[0][4:], None)
    assert len(found.beside) == 1
    # The same oops long before was survived.
    before = [record._replace(time=record.time - 100) for record in other]
    found = read_panic_log([*before, *by(100, *OOPS, f"8.4 {PANIC}")])
    assert (found.beside, len(found.earlier)) == ((), 1)


def test_lines_of_programs_are_not_the_kernels() -> None:
    records = [Record(1.0, "BUG: says a program", 5, 3, 1), *by(100, *OOPS, f"8.4 {PANIC}")]
    assert read_panic_log(records).message == OOPS[0][4:]


def test_a_report_without_a_last_line_does_not_reach_into_a_later_oops() -> None:
    report = "1.0 BUG: sleeping function called from invalid context at mm/page_alloc.c:5"
    found = log(report, "1.0 Call Trace:", *OOPS, f"8.4 {PANIC}")
    assert found.message == OOPS[0][4:]
    assert [one.time for one in found.earlier] == [1.0]
    assert log(report, "1.0 Call Trace:", "900.0 eth0: link is up").message is None
    # A task that does not come out of its oops has not survived it.
    assert log(*OOPS[:5], "900.0 eth0: link is up").message == OOPS[0][4:]


def test_a_report_right_before_an_oops() -> None:
    report = "8.0 BUG: scheduling while atomic: init/1/0x00000002"
    found = log(report, "8.0 Call Trace:", "8.0  schedule+0x1/0x2", *OOPS, f"8.4 {PANIC}")
    assert (found.message, found.where) == (OOPS[0][4:], "guest_crash_null+0xa/0x20 [dmods_guest]")
    assert [one.text for one in found.earlier] == [report[4:]]
    # What KASAN says of the same access is the cause.
    kasan = "8.0 BUG: KASAN: use-after-free in guest_crash_null+0xa/0x20"
    assert log(kasan, "8.0 Call Trace:", *OOPS, f"8.4 {PANIC}").message == kasan[4:]


def test_a_line_before_a_lockup_is_not_its_sentence() -> None:
    lines = (
        "a fan stands still",
        "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [spin:77]",
        "Kernel panic - not syncing: softlockup: hung tasks",
    )
    records = [Record(8.0, text, 0x80000001, 0) for text in lines]
    assert read_panic_log(records).message == lines[1]


def test_who_printed_a_line() -> None:
    """A task has its thread id, and its name where the kernel notes it. An interrupt has its CPU."""
    line = Record(8.0, "text", 17, 6, 0, "kworker/0:1")
    assert line.who == "T17 kworker/0:1"
    assert line._replace(task="").who == "T17"
    assert line._replace(caller=0x80000003).who == "C3 kworker/0:1"
    assert line._replace(caller=None, task="").who == ""
