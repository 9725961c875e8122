"""CPUs that have stopped to take interrupts, or to run softirqs, and who waits for them.

A CPU that hangs does not say so. The others do: the clocks go on, and its own timers are overdue. An idle CPU stops its
tick, but no timer of an idle CPU is overdue: the hardware wakes it for the first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.system.runqueues import Queued, RunQueue
from drgnext.kernel.system.spins import Spin, spin_of

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.stacks.frames import Stack
    from drgnext.kernel.system.processes import Processes

#: ns without an interrupt or a softirq: watchdog_thresh, the limit of the hard lockup detector (kernel/watchdog.c).
LIMIT = 10_000_000_000
#: ns that a task waits for a CPU: watchdog_thresh * 2, the limit of the soft lockup detector (kernel/watchdog.c).
STARVED = 20_000_000_000
INTERRUPTS, SOFTIRQS = "interrupts", "softirqs"
#: kernel/time/timer.c: a wheel's level has 64 buckets, and each level is 8 times as coarse as the one before. The index
#: of a timer's bucket is in its flags (TIMER_ARRAYMASK, include/linux/timer.h).
_LEVEL_BITS, _COARSER_BITS, _INDEX_SHIFT, _INDEX_MASK = 6, 3, 22, 0x3FF
#: include/linux/preempt.h: SOFTIRQ_OFFSET is set while softirqs run; HARDIRQ_MASK counts the handlers of interrupts.
_IN_SOFTIRQ, _IN_HARDIRQ = 0x100, 0xF0000
_MOST_CALLS = 4096
_HLT = b"\xf4"
_ANSWERS = ("smp_call_function", "csd_lock_wait", "on_each_cpu")
_MOST_FRAMES = 32
_STANDS = 10_000_000_000  # ns that one task has run


class Stall(NamedTuple):
    """A CPU that hangs. ``lacks`` is INTERRUPTS or SOFTIRQS, ``age`` how many ns it has not had them (at least).

    ``age`` is None if no clock tells it: the CPU halts with interrupts off, or it waits for a spinlock as all do.
    ``context`` is in words. ``spin`` is the spinlock that it waits for. ``calls`` is the number of calls from other
    CPUs that it has not answered.
    """

    cpu: int
    task: Optional[Task]
    lacks: str
    age: Optional[int]
    context: str
    stack: Optional[Stack]
    spin: Optional[Spin]
    calls: int


class CpuWait(NamedTuple):
    """A CPU whose running task waits in ``function`` for answers of other CPUs."""

    cpu: int
    task: Task
    function: str


class Stalls:
    """The CPUs of one kernel that hang.

    ``late`` is how many ns before the dump the kernel died, 0 if it lived: a panic stops the other CPUs.
    """

    def __init__(self, processes: Processes, queues: Sequence[RunQueue], late: int = 0) -> None:
        self._processes = processes
        self._reader = processes.reader
        self._clocks = processes.clocks
        self._late = late
        self._queues = queues
        self._stacks: dict[int, Stack] = {}
        self.seen: set[int] = set()  # the CPUs whose timers could be read

    def find(self) -> list[Stall]:
        """Return the CPUs that hang, by number."""
        online = self._online()
        found = []
        for queue in self._queues:
            if queue.cpu not in online:
                continue  # its timers have moved to another CPU, and its clocks stand
            hard, soft = self._overdue(queue.cpu)
            hard = max(hard, self._tick_overdue(queue))
            if hard >= LIMIT:
                found.append(self._describe(queue, INTERRUPTS, hard))
            elif soft >= LIMIT:
                found.append(self._describe(queue, SOFTIRQS, soft))
        return found

    def ended(self) -> list[Stall]:
        """Return the CPUs that cannot go on: registers tell, where no clock does.

        A CPU halts with interrupts off. Others wait for spinlocks so, and no CPU is left to release them. A virtual
        machine's CPU may halt while it waits for a spinlock: its host wakes it (kvm_wait(), arch/x86/kernel/kvm.c).

        A host stops the CPUs one after the other. So one may wait behind another one whose turn it is, with the lock
        free: of several CPUs, each must be seen to wait for a lock that is held.
        """
        halted = [one for one in self.dark if one.spin is None and self._halts(one)]
        waiting = [one for one in self.dark if one.spin is not None]
        held = len(self.dark) == 1 or all(one.spin is not None and one.spin.lock is not None for one in waiting)
        deadlocked = self.all_dark and held and len(halted) + len(waiting) == len(self.dark)
        return halted + (waiting if deadlocked else [])

    @cached_property
    def dark(self) -> list[Stall]:
        """Return the CPUs that run with interrupts off, by number, and idle ones that halt so.

        An idle CPU may wait for an interrupt with interrupts off: mwait and arm64's wfi end with it all the same.
        """
        online = self._online()
        found = []
        for queue in self._queues:
            stack = (self._idle_stack(queue) or self.stack(queue)) if queue.cpu in online else None
            if stack is not None and stack.frames and self._interrupts_off(stack):
                one = self._describe(queue, INTERRUPTS, None)
                if queue.current is not None and (queue.current.pid or self._halts(one)):
                    found.append(one)
        return found

    @property
    def all_dark(self) -> bool:
        """Return whether these are all CPUs that are online: then no clock of the kernel goes on."""
        return bool(self.dark) and {one.cpu for one in self.dark} >= self._online()

    def _halts(self, one: Stall) -> bool:
        """Return whether the CPU has run x86's hlt, which only an interrupt ends."""
        if one.stack is None or "rip" not in one.stack.frames[0].registers:
            return False
        return self._reader.memory.read(one.stack.frames[0].pc - 1, 1) == _HLT

    def starved(self) -> dict[int, list[Queued]]:
        """Return, by CPU, the tasks that can run and have waited for it for 20 s.

        A CPU that changes its task does schedule: a small weight or a quota may let a task wait for so long. Those are
        left out, unless realtime tasks have the CPU for themselves.
        """
        found = {}
        for queue in self._queues:
            waiting = [one for one in queue.tasks if self._starves(one)]
            if waiting and queue.current is not None and not self._schedules(queue):
                found[queue.cpu] = waiting
        return found

    def _schedules(self, queue: RunQueue) -> bool:
        """Return whether each task of the CPU has its turn. (Watchdogs interrupt a realtime task for a moment.)"""
        if queue.realtime:
            return self._leaves_time(queue.cpu)
        running = queue.running_task
        return running is not None and (running.age or 0) - self._late < _STANDS

    def _leaves_time(self, cpu: int) -> bool:
        """Return whether the kernel leaves other tasks a part of each second while realtime tasks run.

        Until 6.11 that is what sched_rt_runtime_us does not give away, from 6.12 on it is a server (kernel/sched).
        """
        with self._reader.reading("limits of realtime tasks"):
            queue = self._reader.percpu_variable("runqueues", cpu)
            if self._reader.has_member(queue, "fair_server"):
                return int(queue.fair_server.dl_runtime) > 0
            runtime = self._reader.symbol("sysctl_sched_rt_runtime")
            return runtime is not None and int(runtime) >= 0
        return False

    def _starves(self, one: Queued) -> bool:
        waits = not one.running and not one.throttled and one.policy != "idle"
        return waits and (one.age or 0) - self._late >= STARVED

    def waiting_for_answers(self) -> list[CpuWait]:
        """Return the CPUs that wait for other CPUs to run a function (smp_call_function() and the like)."""
        found = []
        for queue in self._queues:
            stack = self.stack(queue)
            for frame in islice(stack.frames, _MOST_FRAMES) if stack is not None else ():
                name = self._processes.threads.places.name(frame)
                if name.startswith(_ANSWERS) and queue.current is not None:
                    found.append(CpuWait(queue.cpu, queue.current, name))
                    break
        return found

    def stack(self, queue: RunQueue) -> Optional[Stack]:
        """Return the stack of what the CPU runs, None if it is idle or not known."""
        if queue.current is None or not queue.current.pid or not queue.current.on_cpu:
            return None
        if queue.cpu not in self._stacks:
            self._stacks[queue.cpu] = self._processes.threads.stack(queue.current)
        return self._stacks[queue.cpu]

    def spin(self, queue: RunQueue) -> Optional[Spin]:
        """Return the spinlock that the CPU waits for, or None."""
        stack = self.stack(queue)
        return None if stack is None else spin_of(self._reader, self._processes.threads.places, stack)

    def context(self, cpu: int, stack: Optional[Stack]) -> str:
        """Return where the CPU is, in words that follow "CPU 1": "in a softirq", "" if not known."""
        count = self._preempt_count(cpu)
        off = stack is not None and bool(stack.frames) and self._interrupts_off(stack)
        if count is not None and count & _IN_HARDIRQ:
            return "in the handler of an interrupt"
        words = "in a softirq" if count is not None and count & _IN_SOFTIRQ else ""
        return f"{words}{', ' if words else ''}with interrupts off" if off else words

    def _online(self) -> set[int]:
        """Return the CPUs that are online. A panic takes some offline: those count here only if they did not die so."""
        from drgn.helpers.linux.cpumask import for_each_online_cpu

        with self._reader.reading("masks of CPUs"):
            return set(for_each_online_cpu(self._reader.prog))
        return set()

    def _describe(self, queue: RunQueue, lacks: str, age: Optional[int]) -> Stall:
        stack = self._idle_stack(queue) or self.stack(queue)
        spin = None if stack is None else spin_of(self._reader, self._processes.threads.places, stack)
        return Stall(
            queue.cpu, queue.current, lacks, age, self.context(queue.cpu, stack), stack, spin, self._calls(queue.cpu)
        )

    def _idle_stack(self, queue: RunQueue) -> Optional[Stack]:
        """Return the stack of an idle task that hangs, None for other tasks."""
        if queue.current is None or queue.current.pid:
            return None
        with self._reader.reading("stacks of idle tasks"):
            return self._processes.threads.stack(queue.current._replace(on_cpu=True))
        return None

    def _tick_overdue(self, queue: RunQueue) -> int:
        """Return for how many ns the CPU's tick has been overdue, 0 if it is stopped.

        The tick updates the run queue's clock, unless the CPU is idle. That clock comes from the processor. So it tells
        of the CPU that was the timekeeper, too.
        """
        with self._reader.reading("ticks of CPUs"):
            tick = self._reader.percpu_variable("tick_cpu_sched", queue.cpu)
            if not self._tick_stopped(tick):
                idle = queue.current is not None and not queue.current.pid
                timer = self._clocks.since_monotonic(int(tick.sched_timer.node.expires)) or 0
                return max(0, max(timer, 0 if idle else queue.lag or 0) - self._late)
        return 0

    def _tick_stopped(self, tick: Object) -> bool:
        """Return whether the tick is stopped. Since 6.9 that is a flag (TS_FLAG_STOPPED, kernel/time/tick-sched.h)."""
        if self._reader.has_member(tick, "tick_stopped"):
            return bool(int(tick.tick_stopped))
        return bool(int(tick.flags) & 2) if self._reader.has_member(tick, "flags") else True

    def _overdue(self, cpu: int) -> tuple[int, int]:
        """Return for how many ns the CPU's timers have been overdue: those of interrupts, and those of softirqs."""
        hard = soft = 0
        with self._reader.reading("bases of high-resolution timers"):
            hard, soft = self._overdue_high_resolution(cpu)
            self.seen.add(cpu)
        with self._reader.reading("timer wheels"):
            soft = max(soft, self._overdue_in_wheel(cpu))
        return max(0, hard - self._late), max(0, soft - self._late)

    def _overdue_high_resolution(self, cpu: int) -> tuple[int, int]:
        """Return the same of the timers of CLOCK_MONOTONIC. The other clocks may have been set.

        A timer may be set to a moment that is long past, to end at once. So the second one of the CPU counts.
        """
        bases = self._reader.percpu_variable("hrtimer_bases", cpu).clock_base
        ages = []
        for number in (0, self._reader.constant("HRTIMER_BASE_MONOTONIC_SOFT")):
            root = None if number is None else bases[number].active.rb_root.rb_root
            nodes = () if root is None else islice(self._reader.tree(root, "timers"), 2)  # in the order of their ends
            expires = [int(one.node.expires) for one in self._reader.objects("struct hrtimer", "node.node", nodes)]
            ages.append((self._clocks.since_monotonic(expires[1]) or 0) if len(expires) > 1 else 0)
        return ages[0], ages[1]

    def _overdue_in_wheel(self, cpu: int) -> int:
        """Return the same of the timer wheels, without deferrable timers: these wait until the CPU is not idle.

        A wheel's own clock stays where its first timer was to end (forward_timer_base()). So a timer that was set to a
        moment long past is not overdue for longer than its wheel.
        """
        deferrable = self._deferrable()
        oldest = 0
        for number, base in enumerate(self._reader.percpu_variable("timer_bases", cpu)):
            if number == deferrable:
                continue
            ran = self._clocks.since_jiffies(int(base.clk)) or 0
            if ran < LIMIT:
                continue
            # Hundreds of CPUs have a thousand buckets each. So the heads of the lists are read at once.
            data = self._reader.memory.read(base.vectors.address_ or 0, 8 * (base.vectors.type_.length or 0))
            for (first,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
                nodes = islice(self._reader.hashed(first, "timers"), 1) if first else ()  # the others end with it
                for timer in self._reader.objects("struct timer_list", "entry", nodes):
                    oldest = max(oldest, min(ran, self._clocks.since_jiffies(_bucket_end(timer)) or 0))
        return oldest

    def _deferrable(self) -> Optional[int]:
        """Return the index of the wheel of deferrable timers: the last of several (BASE_DEF, kernel/time/timer.c)."""
        wheels = self._reader.prog["timer_bases"].type_.length or 1
        return wheels - 1 if wheels > 1 else None

    def _interrupts_off(self, stack: Stack) -> bool:
        """Return whether the CPU's registers say that interrupts are off: IF of x86, PSTATE.I of arm64."""
        registers = stack.frames[0].registers
        if "pstate" in registers:
            return bool(registers["pstate"] & 0x80)
        flags = next((registers[name] for name in ("eflags", "rflags") if name in registers), None)
        return flags is not None and not flags & 0x200

    def _preempt_count(self, cpu: int) -> Optional[int]:
        """Return the CPU's preempt_count, or None. x86 has it in a per-CPU variable, arm64 in the task."""
        if self._reader.symbol("__preempt_count") is not None:
            with self._reader.reading("counts of CPUs"):
                return int(self._reader.percpu_variable("__preempt_count", cpu)) & 0xFFFFFFFF
        if self._reader.has("struct pcpu_hot", "preempt_count"):
            with self._reader.reading("counts of CPUs"):
                return int(self._reader.percpu_variable("pcpu_hot", cpu).preempt_count) & 0xFFFFFFFF
        queue = next((one for one in self._queues if one.cpu == cpu), None)
        if queue is not None and queue.current is not None and self._reader.has("struct thread_info", "preempt_count"):
            with self._reader.reading("counts of CPUs"):
                info = self._processes.threads.task_object(queue.current).thread_info
                return int(info.preempt_count) & 0xFFFFFFFF
        return None

    def _calls(self, cpu: int) -> int:
        """Return how many calls from other CPUs wait in the CPU's queue (kernel/smp.c)."""
        with self._reader.reading("queues of calls between CPUs"):
            first = self._reader.percpu_variable("call_single_queue", cpu).first.value_()
            nodes: Iterator[int] = self._reader.hashed(first, "calls") if first else iter(())
            return sum(1 for _node in islice(nodes, _MOST_CALLS))
        return 0


def _bucket_end(timer: Object) -> int:
    """Return the tick at which the wheel runs the timer: the end of its bucket (calc_index(), kernel/time/timer.c)."""
    level = (int(timer.flags) >> _INDEX_SHIFT & _INDEX_MASK) >> _LEVEL_BITS
    shift = level * _COARSER_BITS
    return ((int(timer.expires) >> shift) + 1) << shift
