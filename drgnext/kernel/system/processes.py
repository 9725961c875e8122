"""The processes and threads of a kernel: state, memory, how long they have slept, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.stacks.threads import Threads, kernel_threads
from drgnext.kernel.system.ages import Clocks
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgn import Object

# include/linux/sched.h: the bits that /proc shows, and its letters for them (task_index_to_char). They are the same
# from 4.14 to 7.x.
_REPORTED = 0x7F
_LETTERS = "RSDTtXZPI"
_IDLE = 0x402  # TASK_UNINTERRUPTIBLE | TASK_NOLOAD
_RTLOCK_WAIT, _FROZEN = 0x1000, 0x8000  # include/linux/sched.h of 6.1: shown as uninterruptible sleep
_WCHAN_FRAMES = 16

#: What the letters mean.
STATES = {
    "R": "running or ready to run", "S": "sleeping", "D": "in uninterruptible sleep", "T": "stopped",
    "t": "stopped by a tracer", "X": "dead", "Z": "zombies", "P": "parked", "I": "idle kernel threads",
}  # fmt: skip


class Process(NamedTuple):
    """A process, or one of its threads.

    ``rss`` and ``swap`` are bytes of the whole process; a kernel thread has none. ``age`` is ns in the state. ``wchan``
    is the function that sleeps, as /proc/PID/wchan.
    """

    task: Task
    parent: int
    uid: Optional[int]
    state: str
    cpu: Optional[int]
    on_cpu: bool
    threads: int
    rss: int
    swap: int
    age: Optional[int]
    wchan: str
    kernel_thread: bool


class Processes:
    """The processes of one kernel. ``notes`` of the Reader and of the Threads say what is missing."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.threads: Threads = kernel_threads(reader.kernel)
        self.clocks = Clocks(reader)
        self.page = 1 << int(reader.prog["PAGE_SHIFT"])
        self._memory: dict[int, tuple[int, int]] = {}  # by mm: rss, swap
        self._own_counts: dict[int, Counter[int]] = {}  # by mm: pages that threads have not added to it yet
        self._sched_text = self._scheduler()
        self._new_state = reader.has("struct task_struct", "__state")  # since 5.14

    def all(self, threads: bool = False) -> Iterator[Process]:
        """Yield every process that has a pid, or with ``threads`` every thread."""
        groups: dict[int, int] = {}
        tasks = [task for task in self.threads.tasks.all() if task.pid > 0]
        self._ask_threads(tasks)
        for task in tasks:
            groups[task.tgid] = groups.get(task.tgid, 0) + 1
        for task in tasks:
            if threads or task.pid == task.tgid:
                with self.reader.reading("tasks"):
                    yield self.process(task, groups.get(task.tgid, 1))

    def process(self, task: Task, threads: int = 1) -> Process:
        """Return what is known of a task. Raises drgn.FaultError."""
        thing = self.threads.task_object(task)
        state = self.state(thing)
        cpu = self.threads.cpu_of(task)
        rss, swap = self._used(thing.mm.value_())
        uid: Optional[int] = None
        parent = 0
        with self.reader.reading("credentials of tasks"):
            uid = int(thing.cred.uid.val)
            parent = int(thing.real_parent.tgid)
        return Process(
            task, parent, uid, state, cpu, task.on_cpu, threads, rss, swap, self.age(thing, task, state, cpu),
            "" if task.on_cpu or state in "RXZ" else self.wchan(task), not thing.mm.value_() and state not in "XZ",
        )  # fmt: skip

    def state(self, thing: Object) -> str:
        """Return the letter of a task's state, as /proc/PID/stat and ps show it."""
        state = int(thing.member_("__state" if self._new_state else "state"))
        bits = (state | int(thing.exit_state)) & _REPORTED
        if state & 0xFFFF == _IDLE:
            return "I"
        if self._new_state and state & (_RTLOCK_WAIT | _FROZEN):
            return "D"
        return _LETTERS[bits.bit_length()]

    def age(self, thing: Object, task: Task, state: str, cpu: Optional[int]) -> Optional[int]:
        """Return for how many ns the task is in its state, or None."""
        if task.on_cpu:
            return self.clocks.since_arrival(thing)
        if state == "R":
            return self.clocks.since_queued(thing)
        return None if cpu is None else self.clocks.since_switch(thing, cpu)

    def wchan(self, task: Task) -> str:
        """Return the function that called the scheduler, "" if the stack cannot be read."""
        places = self.threads.places
        for frame in self.threads.stack(task, _WCHAN_FRAMES).frames:
            if not any(start <= frame.pc < end for start, end in self._sched_text):
                name = places.name(frame)
                if name and not name.startswith("__switch_to"):
                    return name
        return ""

    def _scheduler(self) -> list[tuple[int, int]]:
        """Return the address ranges of the functions that only sleep (in_sched_functions(), kernel/sched/core.c)."""
        found = []
        for name in ("sched", "lock"):
            try:
                start = self.reader.prog.symbol(f"__{name}_text_start").address
                end = self.reader.prog.symbol(f"__{name}_text_end").address
            except LookupError:
                continue
            if start < end:
                found.append((start, end))
        return found

    def _ask_threads(self, tasks: list[Task]) -> None:
        """Read the pages that each thread has counted for itself: until 6.1 it adds them after 64 page faults."""
        if not self.reader.has("struct task_struct", "rss_stat"):
            return
        for task in tasks:
            with self.reader.reading("tasks"):
                thing = self.threads.task_object(task)
                mm = thing.mm.value_()
                if mm:
                    own = self._own_counts.setdefault(mm, Counter())
                    own.update({index: int(count) for index, count in enumerate(thing.rss_stat.count)})

    def _used(self, mm: int) -> tuple[int, int]:
        """Return (bytes in memory, bytes in swap) of an address space."""
        if not mm:
            return 0, 0
        if mm not in self._memory:
            counts: dict[str, int] = {}
            with self.reader.reading("address spaces"):
                counters = self.reader.pointer("struct mm_struct", mm).rss_stat
                for name in ("MM_FILEPAGES", "MM_ANONPAGES", "MM_SHMEMPAGES", "MM_SWAPENTS"):
                    index = self.reader.constant(name)
                    if index is not None:
                        own = self._own_counts[mm][index] if mm in self._own_counts else 0
                        counts[name] = max(0, self._count(counters, index) + own) * self.page
            swap = counts.pop("MM_SWAPENTS", 0)
            self._memory[mm] = sum(counts.values()), swap
        return self._memory[mm]

    def _count(self, counters: Object, index: int) -> int:
        """Return one of the numbers of pages. Since 6.2 each is a counter with a part for each CPU."""
        from drgn import TypeKind

        if counters.type_.kind == TypeKind.STRUCT:
            return int(counters.count[index].counter)
        return self.reader.counter(counters[index])
