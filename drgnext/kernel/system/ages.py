"""The clocks of a kernel at the moment of the dump, and how long ago something happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from drgnext.kernel.crash import klog

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_SECOND = 1_000_000_000
_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


class Clocks:
    """The time in the units that the kernel's structures use. A clock that cannot be read is None."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._queues: dict[int, tuple[int, int]] = {}  # by CPU: rq.clock, rq.clock_task
        for cpu in reader.cpus():
            with reader.reading("run queues"):
                queue = reader.percpu_variable("runqueues", cpu)
                self._queues[cpu] = int(queue.clock), int(queue.clock_task)
        self.sched = self._sched()
        self.jiffies: Optional[int] = None
        self.hz = 250
        self.monotonic: Optional[int] = None  # CLOCK_MONOTONIC in ns, as ktime_get_ns() gives it
        self.boot: Optional[int] = None  # the wall clock, in ns since 1970, when CLOCK_MONOTONIC was 0
        with reader.reading("clocks"):
            self.jiffies = int(reader.prog["jiffies"])
            self.hz = self._ticks()
            self.monotonic = self._monotonic()
            self.boot = self._boot()

    def _sched(self) -> Optional[int]:
        """Return the scheduler's clock in ns, or None.

        A run queue of an idle CPU has a stale clock. The log has the same clock (local_clock(), kernel/printk), and a
        panic writes to it last. So the latest of all is the nearest to the dump.
        """
        records, _notes = klog.read(self._reader.prog)
        latest = [int(records[-1].time * _SECOND)] if records else []
        times = [clock for clock, _task in self._queues.values()]
        return max([*times, *latest], default=None)

    def _ticks(self) -> int:
        """Return CONFIG_HZ: the timekeeper advances by xtime_interval in each tick (kernel/time/timekeeping.c)."""
        keeper = self._keeper()
        length = int(keeper.xtime_interval) >> int(keeper.tkr_mono.shift) if keeper is not None else 0
        return round(_SECOND / length) if 100_000 < length < _SECOND else 250

    def _monotonic(self) -> Optional[int]:
        """Return CLOCK_MONOTONIC at its last update, which is at most some ticks before the dump."""
        keeper = self._keeper()
        if keeper is None:
            return None
        base = keeper.tkr_mono
        return int(base.base) + (int(base.xtime_nsec) >> int(base.shift))

    def _boot(self) -> Optional[int]:
        keeper = self._keeper()
        if keeper is None:
            return None
        offset = keeper.wall_to_monotonic
        return -(int(offset.tv_sec) * _SECOND + int(offset.tv_nsec))

    def _keeper(self) -> Optional[Object]:
        core = self._reader.symbol("tk_core")
        if core is not None:
            return core.timekeeper
        data = self._reader.symbol("timekeeper_data")  # since 6.18 there are several; the first is the system's
        return None if data is None else data[0].timekeeper

    def since_switch(self, task: Object, cpu: int) -> Optional[int]:
        """Return for how many ns a sleeping task has slept, or None.

        The scheduler notes in se.exec_start when it last charged the task, which it does as the task leaves its CPU.
        That clock does not count interrupts (rq.clock_task); the difference to rq.clock is added.
        """
        charged = int(task.se.exec_start)
        clock, clock_task = self._queues.get(cpu, (0, 0))
        return self.since(charged + max(0, clock - clock_task) if charged else self._arrived(task))

    def since_arrival(self, task: Object) -> Optional[int]:
        """Return for how many ns a running task has run, or None."""
        return self.since(self._arrived(task))

    def since_queued(self, task: Object) -> Optional[int]:
        """Return for how many ns a task has waited for a CPU, or None. Needs CONFIG_SCHED_INFO."""
        with self._reader.reading("times of tasks"):
            return self.since(int(task.sched_info.last_queued))
        return None

    def _arrived(self, task: Object) -> int:
        if not self._reader.has("struct sched_info", "last_arrival"):
            return 0
        return int(task.sched_info.last_arrival)

    def since(self, moment: int) -> Optional[int]:
        """Return how many ns ago the scheduler's clock showed ``moment``, or None for 0 and moments to come."""
        if not moment or self.sched is None or moment > self.sched + _SECOND:
            return None
        return max(0, self.sched - moment)

    def since_monotonic(self, moment: int) -> Optional[int]:
        """Return how many ns ago CLOCK_MONOTONIC showed ``moment``, or None."""
        if not moment or self.monotonic is None or moment > self.monotonic + _SECOND:
            return None
        return max(0, self.monotonic - moment)

    def since_jiffies(self, moment: int, bits: int = 64) -> Optional[int]:
        """Return how many ns ago the counter of ticks was ``moment``, or None. Some structures keep 32 bits of it."""
        if self.jiffies is None:
            return None
        passed = (self.jiffies - moment) & ((1 << bits) - 1)
        return passed * _SECOND // self.hz if passed < 1 << (bits - 1) else None


def age_text(age: Optional[int]) -> Optional[str]:
    """Return a time in ns as people read it: 0.31s, 12.4s, 3m05s, 2h14m, 4d02h."""
    if age is None:
        return None
    if age < 10 * _SECOND:
        return f"{age / _SECOND:.2f}s"
    if age < 60 * _SECOND:
        return f"{age / _SECOND:.1f}s"
    seconds = age // _SECOND
    for unit, name, smaller, its_name in _UNITS:
        if seconds >= unit:
            return f"{seconds // unit}{name}{seconds % unit // smaller:02}{its_name}"
    return f"{seconds}s"
