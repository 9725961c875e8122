"""Timers that are set: those of the timer wheel, and the high-resolution ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.ages import Clocks

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_SECOND = 1_000_000_000
#: enum hrtimer_base_type (include/linux/hrtimer_defs.h); the four soft ones follow.
CLOCKS = ("monotonic", "realtime", "boottime", "tai")


class Timer(NamedTuple):
    """A timer. ``expires`` is in ns from the dump on; it is negative for one that is late.

    ``clock`` is "jiffies" for the timer wheel. ``owner`` is what a sleeping task's timer will wake, "" for others.
    """

    cpu: int
    clock: str
    expires: Optional[int]
    function: str
    owner: str
    address: int


def timers(reader: Reader) -> Iterator[Timer]:
    """Yield the timers of all possible CPUs."""
    clocks = Clocks(reader)
    for cpu in reader.cpus():
        with reader.reading("timer wheels"):
            yield from _of_the_wheel(reader, cpu, clocks)
        with reader.reading("bases of high-resolution timers"):
            yield from _of_high_resolution(reader, cpu, clocks)


def _of_the_wheel(reader: Reader, cpu: int, clocks: Clocks) -> Iterator[Timer]:
    for base in reader.percpu_variable("timer_bases", cpu):
        for vector in base.vectors:
            first = vector.first.value_()
            if not first:
                continue
            for timer in reader.objects("struct timer_list", "entry", reader.hashed(first, "timers")):
                with reader.reading("timers"):
                    left = None
                    if clocks.jiffies is not None:
                        ticks = (int(timer.expires) - clocks.jiffies) & 0xFFFFFFFFFFFFFFFF
                        ticks -= (ticks >> 63) << 64
                        left = ticks * _SECOND // clocks.hz
                    function = reader.function(timer.function.value_())
                    owner = _owner(reader, "struct process_timer", timer) if function == "process_timeout" else ""
                    yield Timer(cpu, "jiffies", left, function, owner, timer.value_())


def _of_high_resolution(reader: Reader, cpu: int, clocks: Clocks) -> Iterator[Timer]:
    for number, base in enumerate(reader.percpu_variable("hrtimer_bases", cpu).clock_base):
        root = base.active.rb_root.rb_root
        now = None if clocks.monotonic is None else clocks.monotonic + int(base.offset)
        for timer in reader.objects("struct hrtimer", "node.node", reader.tree(root, "timers")):
            with reader.reading("timers"):
                left = None if now is None else int(timer.node.expires) - now
                function = reader.function(timer.function.value_())
                owner = _owner(reader, "struct hrtimer_sleeper", timer) if function == "hrtimer_wakeup" else ""
                clock = CLOCKS[number % len(CLOCKS)]
                yield Timer(cpu, clock, left, function, owner, timer.value_())


def _owner(reader: Reader, structure: str, timer: Object) -> str:
    """Return "NAME (PID)" of the task that the timer wakes. The structure begins with the timer, or has it inside."""
    member = "timer"
    at = timer.value_() - reader.offset(structure, member)
    task = reader.pointer(structure, at).task
    if not task.value_():
        return ""
    return f"{reader.string(task.comm, 16)} ({int(task.pid)})"
