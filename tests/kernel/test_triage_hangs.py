"""Triage of guests that hang while nothing panics: which CPU, since when, in which function, and who waits for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from dmods.command import KERNEL
from dmods.finding import CERTAIN, Finding
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.system import spins, stalls
from drgnext.kernel.system.runqueues import Queued, RunQueue, run_queues
from drgnext.kernel.system.spins import Spin
from drgnext.kernel.system.stalls import Stalls
from drgnext.triage.checks import runqueues
from drgnext.triage.facts import KernelFacts
from drgnext.triage.kernel import triage_kernel
from fixtures import answers, kernel
from fixtures.kernel import hang
from tests.kernel.crashed import open_program

OTHERS = pytest.mark.seldom("it needs guests of another kernel")
RELEASES = ("6.1", *(pytest.param(name, marks=OTHERS) for name in ("6.12", "5.10", "sid")))
each_release = pytest.mark.parametrize("release", RELEASES)
guests = pytest.mark.thorough("it needs guests that hang")
_SECOND = 1_000_000_000


@cache
def opened(release: str, parts: Sequence[str], cpus: int = hang.CPUS) -> Kernel:
    import drgn

    guest = hang.guest(release, parts, cpus)
    prog = drgn.Program()
    prog.set_core_dump(str(guest.vmcore))
    prog.load_debug_info([str(path) for path in (guest.vmlinux, *guest.modules)])
    return Kernel(prog)


@cache
def found(release: str, parts: Sequence[str], cpus: int = hang.CPUS) -> list[Finding]:
    triage = triage_kernel(opened(release, parts, cpus))
    assert triage.unknown == []
    return triage.findings


def of_cpu(release: str, parts: Sequence[str], part: str) -> Finding:
    """Return the finding about the CPU that hung with that part."""
    cpu, _began = hang.guest(release, parts).began[part]
    (finding,) = (one for one in found(release, parts) if one.what.startswith(f"CPU {cpu} "))
    return finding


def lasted(release: str, parts: Sequence[str], part: str) -> float:
    """Return for how many seconds the part had hung when the host made the dump."""
    guest = hang.guest(release, parts)
    last = max(began for _cpu, began in guest.began.values())
    return guest.lasted + (last - guest.began[part][1]) / _SECOND


def age(text: str) -> float:
    """Return the first age in the text in seconds."""
    match = re.search(r"\b(?:(\d+)m)?([\d.]+)s\b", text)
    assert match is not None, text
    return 60 * int(match[1] or 0) + float(match[2])


@guests
@each_release
def test_a_cpu_with_interrupts_off(release: str) -> None:
    hangs = of_cpu(release, hang.LOCKED, "irqsoff")
    (pid,) = hang.guest(release, hang.LOCKED).pids("irqsoff")
    assert (hangs.kind, hangs.confidence) == ("cpu-no-interrupts", CERTAIN)
    assert f"with interrupts off: it runs irqsoff ({pid}) in dmods_hang`hang_irqs_off+0x" in hangs.what
    # The watchdog's timer comes each 4 seconds, and the tick's each few ms.
    assert age(hangs.what) == pytest.approx(lasted(release, hang.LOCKED, "irqsoff"), abs=6)


@guests
@each_release
def test_a_cpu_that_waits_for_a_spinlock(release: str) -> None:
    waits = of_cpu(release, hang.LOCKED, "waiter")
    assert "hang_waiter" in waits.what
    assert "waiting for the spinlock hang_lock" in waits.what
    assert age(waits.what) == pytest.approx(lasted(release, hang.LOCKED, "waiter"), abs=6)
    # Who holds the lock comes first.
    order = [one.what[:6] for one in found(release, hang.LOCKED) if one.kind == "cpu-no-interrupts"]
    assert order == ["CPU 1 ", "CPU 2 "]


@guests
@each_release
def test_a_cpu_in_a_softirq(release: str) -> None:
    hangs = of_cpu(release, hang.LOCKED, "softirq")
    # If no timer of this CPU waits for the softirq, its tasks tell of it (seen on 5.10).
    assert hangs.kind in ("cpu-no-softirqs", "cpu-stuck")
    assert ", in a softirq" in hangs.what
    assert "dmods_hang`hang_in_softirq+0x" in hangs.what
    # It is a lower bound: the oldest timer that waits for the softirq may have been set later.
    assert stalls.LIMIT / _SECOND <= age(hangs.what) <= lasted(release, hang.LOCKED, "softirq") + 6


@guests
@each_release
def test_a_workqueue_behind_a_work_that_sleeps(release: str) -> None:
    (blocked,) = (one for one in found(release, hang.LOCKED) if one.kind == "workqueue-blocked")
    assert blocked.what.startswith("3 works wait (hang_work_behind) in the workqueue hang_queue for ")
    assert "behind hang_work_blocks of kworker/" in blocked.what
    assert age(blocked.what) == pytest.approx(lasted(release, hang.LOCKED, "work"), abs=6)


@guests
@each_release
def test_nothing_else_hangs(release: str) -> None:
    kinds = sorted(one.kind for one in found(release, hang.LOCKED))
    softirq = of_cpu(release, hang.LOCKED, "softirq").kind
    assert kinds == sorted(["cpu-no-interrupts", "cpu-no-interrupts", softirq, "workqueue-blocked"])
    proposed = {words for one in found(release, hang.LOCKED) for words in one.next}
    assert proposed
    for words in sorted(proposed):
        name, *arguments = words.split()
        assert answers.report(opened(release, hang.LOCKED), name, *arguments, side=KERNEL).tables, words


@guests
@each_release
def test_the_handler_of_an_interrupt_and_who_waits_for_it(release: str) -> None:
    hangs = of_cpu(release, hang.CALLED, "hardirq")
    assert hangs.kind == "cpu-no-interrupts"
    assert ", in the handler of an interrupt" in hangs.what
    assert "dmods_hang`hang_in_hardirq+0x" in hangs.what
    assert age(hangs.what) == pytest.approx(lasted(release, hang.CALLED, "hardirq"), abs=6)
    cpu, _began = hang.guest(release, hang.CALLED).began["call"]
    assert re.search(rf"calls? from other CPUs \(waiting: .*CPU {cpu} in smp_call_function_single", hangs.what)
    assert re.search(r"\d works? of workqueues", hangs.what)


@guests
@each_release
def test_a_cpu_that_takes_interrupts_and_does_not_schedule(release: str) -> None:
    hangs = of_cpu(release, hang.GREEDY, "soft")
    (pid,) = hang.guest(release, hang.GREEDY).pids("soft")
    assert hangs.kind == "cpu-stuck"
    assert f"CPU 1 runs soft ({pid}) in dmods_hang`hang_soft+0x" in hangs.what
    # A task began to wait for this CPU a little later: the watchdog asks each 4 seconds.
    assert age(hangs.what) == pytest.approx(lasted(release, hang.GREEDY, "soft"), abs=6)


@guests
@each_release
def test_a_realtime_task_that_leaves_no_time(release: str) -> None:
    if release in ("6.12", "sid"):  # since 6.12 a server has a part of each second for others, whatever is set
        assert [one.what for one in found(release, hang.GREEDY) if one.what.startswith("CPU 3 ")] == []
        return
    hangs = of_cpu(release, hang.GREEDY, "first")
    (pid,) = hang.guest(release, hang.GREEDY).pids("first")
    # The softirqs of this CPU wait for it as well, if there are any.
    assert hangs.kind in ("cpu-stuck", "cpu-no-softirqs")
    assert f" runs first ({pid}), a realtime task (fifo), " in hangs.what
    assert stalls.LIMIT / _SECOND <= age(hangs.what) <= lasted(release, hang.GREEDY, "first") + 6


@guests
@each_release
def test_a_work_that_does_not_sleep(release: str) -> None:
    # A worker that was woken on a CPU that hangs may hold up another pool.
    blocked = [one for one in found(release, hang.GREEDY) if "for the workers of CPU 2, which " in one.what]
    if release in ("6.12", "sid"):  # since 6.6 others begin: the kernel sees that such a work takes long
        assert blocked == []
        return
    (one,) = blocked
    assert one.kind == "workqueue-blocked"
    assert "hang_work_behind" in one.what
    assert "behind hang_work_greedy of kworker/2:" in one.what
    assert age(one.what) == pytest.approx(lasted(release, hang.GREEDY, "hog"), abs=6)


@guests
@each_release
def test_a_reader_of_rcu_that_sleeps(release: str) -> None:
    stalled = [one for one in found(release, hang.READER) if one.kind == "rcu-stall"]
    if release == "5.10":  # its RCU does not see readers: a CPU that schedules has none (no CONFIG_PREEMPT_RCU)
        assert stalled == []
        return
    (one,) = stalled
    (pid,) = hang.guest(release, hang.READER).pids("reader")
    assert f" for reader ({pid}), a reader that sleeps in hang_reader" in one.what
    assert age(one.what) == pytest.approx(lasted(release, hang.READER, "reader"), abs=6)
    assert found(release, hang.READER) == [one]


@guests
@each_release
def test_all_cpus_have_interrupts_off(release: str) -> None:
    """No clock goes on, so nothing is overdue. A CPU that halts cannot go on, and the other one waits for its lock."""
    first, second = found(release, hang.BOTH, 2)
    assert (first.kind, first.confidence) == ("cpu-no-interrupts", CERTAIN)
    assert first.what.startswith("CPU 1 halts with interrupts off, and no interrupt ends that: it runs irqsoff (")
    assert ") in dmods_hang`hang_irqs_off+0x" in first.what
    assert second.what.startswith("CPU 0 waits for a spinlock with interrupts off, and no CPU is left to release it: ")
    assert ", waiting for the spinlock hang_lock, " in second.what


@guests
@each_release
def test_the_function_for_which_the_machine_is_stopped(release: str) -> None:
    (one,) = found(release, hang.STOPPED, 2)
    assert one.what.startswith("CPU 1 halts with interrupts off, and no interrupt ends that: it runs migration/1 (")
    assert ") in dmods_hang`hang_stopped+0x" in one.what
    assert "called by multi_cpu_stop" in one.what


@guests
@each_release
def test_the_only_cpu_halts(release: str) -> None:
    (one,) = found(release, hang.HALTS, 1)
    assert one.what.startswith("CPU 0 halts with interrupts off, and no interrupt ends that: it runs irqsoff (")


@guests
@each_release
def test_the_only_cpu_waits_for_a_lock_that_it_holds(release: str) -> None:
    (one,) = found(release, hang.TWICE, 1)
    assert one.what.startswith("CPU 0 waits for a spinlock with interrupts off, and no CPU is left to release it: ")
    assert "called by _raw_spin_lock_irqsave, dmods_hang`hang_" in one.what  # gcc makes the last call a jump
    assert ", waiting for the spinlock hang_lock, " in one.what


@guests
@each_release
def test_the_only_cpu_loops_with_interrupts_off(release: str) -> None:
    """Nothing in one dump tells a loop from a function that ends soon. So it is told where the CPU was."""
    triage = triage_kernel(opened(release, hang.LOOPS, 1))
    assert triage.findings == []
    (unknown,) = triage.unknown
    assert (
        "all CPUs had interrupts off, so no clock tells for how long: CPU 0 in dmods_hang`hang_dark+0x" in unknown.why
    )
    assert "make a second dump" in unknown.help


@guests
@each_release
def test_loads_of_a_healthy_machine(release: str) -> None:
    """Among them tasks that wait for a CPU, or sleep uninterruptibly, for longer than the limits."""
    guest = hang.guest(release, hang.LOADED)
    assert set(guest.began) == set(hang.LOADED)
    facts = KernelFacts(opened(release, hang.LOADED))
    (vforks,) = (one for one in facts.processes if one.task.pid == guest.pids("vforks")[0])
    assert vforks.state == "D"
    assert vforks.age is not None
    assert vforks.age / _SECOND >= 120
    throttled = [one for queue in facts.queues for one in queue.tasks if one.task.comm == "throttled"]
    if release != "sid":  # 7.2 lets each of them run a little sooner
        assert max(one.age or 0 for one in throttled) >= stalls.STARVED
    assert sum(one.throttled for one in throttled) >= len(throttled) - 1  # one of them may have the ms
    assert found(release, hang.LOADED) == []


@guests
@each_release
def test_idle_and_busy_cpus_are_well(release: str) -> None:
    assert found(release, hang.HEALTHY) == []


@guests
def test_one_idle_cpu_is_well() -> None:
    assert found("6.1", hang.IDLE, 1) == []


@guests
@each_release
def test_a_cpu_that_waits_for_an_answer(release: str) -> None:
    (stuck,) = (one for one in found(release, hang.CALLED) if one.kind == "cpu-stuck")
    cpu, _began = hang.guest(release, hang.CALLED).began["call"]
    (pid,) = hang.guest(release, hang.CALLED).pids("call")
    waits = f"CPU {cpu} runs call ({pid}), which waits for another CPU to answer its call (smp_call_function_single)"
    assert stuck.what.startswith(waits)
    assert sorted(one.kind for one in found(release, hang.CALLED)) == ["cpu-no-interrupts", "cpu-stuck"]


@guests
def test_an_nmi_that_is_over_leaves_no_frames() -> None:
    """RCU asked all CPUs for their stacks by NMI. CPU 1 went on where it was, and its stack still has the NMI's."""
    guest = hang.guest("6.1", hang.LOCKED)
    assert "asm_exc_nmi" in guest.console or "NMI backtrace for cpu 1" in guest.console
    (pid,) = guest.pids("irqsoff")
    report = answers.answer(opened("6.1", hang.LOCKED), "findstack", str(pid), side=KERNEL)
    names = [frame["name"] for frame in report["tables"][0]["rows"][0]["stack"]]
    assert names[0].startswith("dmods_hang`hang_irqs_off+0x")
    assert [name for name in names if "nmi" in name] == []


def test_a_clock_that_goes_on_shows_who_stands_still() -> None:
    """In the dump of a panic, the CPU that is still online stands. A later clock makes its timers overdue."""
    facts = KernelFacts(Kernel(open_program(kernel.guest("6.1", crash="sysrq"), modules=False)))
    assert Stalls(facts.lister, facts.queues).find() == []
    clocks = facts.lister.clocks
    assert clocks.jiffies is not None
    assert clocks.monotonic is not None
    assert clocks.sched is not None
    clocks.jiffies += 60 * clocks.hz
    clocks.monotonic += 60 * _SECOND
    clocks.sched += 60 * _SECOND
    assert facts.late // _SECOND in range(60, 75)
    assert facts.stalled == []  # the panic was so long ago
    online = facts.stalls._online()
    assert online
    late = Stalls(facts.lister, run_queues(facts.lister)).find()
    assert {one.cpu for one in late} == online
    assert [one.lacks for one in late] == [stalls.INTERRUPTS] * len(online)
    assert [round(one.age / _SECOND) in range(56, 75) for one in late] == [True] * len(online)


def test_an_idle_cpu_with_tasks_that_can_run() -> None:
    idle, waiter = (Task(address, pid, pid, name, 0, not pid, 0) for address, pid, name in ((1, 0, "i"), (2, 7, "w")))
    queues = [
        RunQueue(cpu, 1, idle, 0, [Queued(waiter, False, 120, "normal", wait * _SECOND)], 0)
        for cpu, wait in ((0, 25), (1, 2))
    ]
    processes: Any = SimpleNamespace(reader=None, clocks=None)
    found_late = stalls.Stalls(processes, queues).starved()
    facts: Any = SimpleNamespace(queues=queues, stalled=[], starved=found_late, works_of=lambda _cpu: 0)
    (stuck,) = (one for one in runqueues.run(facts) if isinstance(one, Finding))
    assert stuck.kind == "cpu-idle"
    assert stuck.what == "CPU 0 is idle, and 1 task has waited for it for up to 25.0s"


HELD, FREE, NONE = Spin(0x1000, "lock"), Spin(None, ""), None


@pytest.mark.parametrize(
    ("spins_of", "online", "ended"),
    [
        ((HELD, HELD), 2, [0, 1]),
        ((HELD, HELD), 3, []),  # the third CPU may release them
        # The host stopped one CPU after the other: the first may be next in the queue of a lock that is free.
        ((HELD, FREE), 2, []),
        ((FREE,), 1, [0]),  # nobody else can hold it
        ((HELD, NONE), 2, []),  # the other CPU may hold the lock for a moment
    ],
)
def test_cpus_that_wait_for_locks_have_ended_if_none_is_left(spins_of: Any, online: int, ended: list[int]) -> None:
    processes: Any = SimpleNamespace(reader=None, clocks=None)
    late = stalls.Stalls(processes, [])
    late.__dict__["dark"] = [
        stalls.Stall(cpu, None, stalls.INTERRUPTS, None, "", None, spin, 0) for cpu, spin in enumerate(spins_of)
    ]
    late.__dict__["_online"] = lambda: set(range(online))
    assert [one.cpu for one in late.ended()] == ended


@pytest.mark.parametrize(
    ("expires", "index", "end"),
    [(1000, 0, 1001), (1000, 63, 1001), (1000, 64, 1008), (1023, 128, 1024), (1024, 128, 1088), (5, 8 * 64, 1 << 24)],
)
def test_the_wheel_runs_a_timer_at_the_end_of_its_bucket(expires: int, index: int, end: int) -> None:
    timer: Any = SimpleNamespace(expires=expires, flags=index << 22 | 3)
    assert stalls._bucket_end(timer) == end


@pytest.mark.parametrize(
    ("words", "lock"),
    [
        ({0: 1}, 0),  # the kernel of a virtual machine notes no waiter
        ({0: 1, 8: 2 << 18 | 1}, 8),  # CPU 1 is the last that waits
        ({0: 0x101, 8: 1}, 0),  # the pending bit
        ({0: 1, 8: 1}, None),
        ({0: 9 << 18 | 1}, None),  # there is no CPU 8
        ({0: 0x201}, None),
        ({}, None),
    ],
)
def test_the_spinlock_in_a_register(words: dict[int, int], lock: Any) -> None:
    base = 0xFFFF888000000000
    memory = {base + at: word.to_bytes(4, "little") for at, word in words.items()}
    reader: Any = SimpleNamespace(
        cpus=lambda: [0, 1, 2, 3], memory=SimpleNamespace(read=lambda address, size: memory.get(address, b"")[:size])
    )
    registers = {f"r{at}": base + at for at in range(0, 32, 4)} | {"rax": 1, "rcx": (1 << 64) - 1}
    assert spins._lock_in(reader, registers) == (None if lock is None else base + lock)
