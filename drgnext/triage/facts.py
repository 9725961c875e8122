"""The facts that the checks of kernels look at. Each fact is computed once; the commands compute the same ones."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Optional

from dmods.finding import CannotCheck
from drgnext.kernel.crash.panic import Cause, find_panic
from drgnext.kernel.crash.whole_log import read_log
from drgnext.kernel.pages.memmap import REMEMBERED, Counted, PageArray, page_array
from drgnext.kernel.slabs.leaks import SlabLeaks, kernel_leaks
from drgnext.kernel.stacks.threads import Threads, kernel_threads
from drgnext.kernel.system.grace_periods import GracePeriod, running_grace_period
from drgnext.kernel.system.locks import Locks
from drgnext.kernel.system.meminfo import Meminfo
from drgnext.kernel.system.processes import Process, Processes
from drgnext.kernel.system.reading import Reader
from drgnext.kernel.system.runqueues import Queued, RunQueue, run_queues
from drgnext.kernel.system.sockets import Socket, Sockets
from drgnext.kernel.system.stalls import CpuWait, Stall, Stalls
from drgnext.kernel.system.workqueues import Waiting, Workqueues

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

_PANIC = "Kernel panic - not syncing"


class KernelFacts:
    """The facts of one kernel. ``private``: no contents of its memory may be shown."""

    budgets = {"cause": 60.0, "pages": 300.0, "leaks": 300.0, "processes": 120.0, "sockets": 60.0}  # noqa: RUF012

    def __init__(self, kernel: Kernel, private: bool = False) -> None:
        self.kernel = kernel
        self.private = private

    def provide(self, name: str) -> None:
        """Compute a fact that checks name in ``needs``. Raises CannotCheck."""
        if name == "leaks" and not self.leaks.verdict.possible:
            raise CannotCheck(self.leaks.verdict.reason)
        getattr(self, name)

    @cached_property
    def threads(self) -> Threads:
        """Return the tasks and their stacks."""
        return kernel_threads(self.kernel)

    @cached_property
    def reader(self) -> Reader:
        """Return what reads the kernel's structures."""
        return Reader(self.kernel)

    @cached_property
    def cause(self) -> Cause:
        """Return why the kernel died, as panicinfo does."""
        return find_panic(self.threads)

    @cached_property
    def array(self) -> PageArray:
        """Return the page array."""
        return page_array(self.kernel)

    @cached_property
    def pages(self) -> Counted:
        """Return the count of all pages, as memstat does."""
        return self.array.count(REMEMBERED)

    @property
    def page_size(self) -> int:
        """Return the bytes of a page."""
        return 1 << int(self.array.layout["page_bits"])

    @cached_property
    def leaks(self) -> SlabLeaks:
        """Return the slab objects that nothing points to."""
        return kernel_leaks(self.kernel)

    @cached_property
    def lister(self) -> Processes:
        """Return what describes processes."""
        return Processes(self.reader)

    @cached_property
    def processes(self) -> list[Process]:
        """Return every thread of every process."""
        return list(self.lister.all(threads=True))

    @cached_property
    def locks(self) -> Locks:
        """Return what finds the locks that tasks wait for."""
        return Locks(self.lister)

    @cached_property
    def late(self) -> int:
        """Return how many ns before the dump the kernel panicked, 0 if it did not. A panic stops its CPUs."""
        latest = self.lister.clocks.sched
        if self.cause.died is False or latest is None:
            return 0
        records, _notes = read_log(self.kernel.prog)
        times = [int(one.time * 1_000_000_000) for one in records if _PANIC in one.text and not one.facility]
        return max(0, latest - times[0]) if times else 0

    @cached_property
    def queues(self) -> list[RunQueue]:
        """Return the run queue of each CPU."""
        return run_queues(self.lister)

    @cached_property
    def stalls(self) -> Stalls:
        """Return what finds the CPUs that hang."""
        return Stalls(self.lister, self.queues, self.late)

    @cached_property
    def stalled(self) -> list[Stall]:
        """Return the CPUs that hang. Those that a panic halted do not."""
        return self.stalls.find() or (self.stalls.ended() if self.cause.died is False else [])

    @cached_property
    def starved(self) -> dict[int, list[Queued]]:
        """Return, by CPU, the tasks that can run and have waited for it for long."""
        return self.stalls.starved()

    @property
    def standing(self) -> set[int]:
        """Return the CPUs that do not go on: those that hang, and those that do not schedule."""
        return {stall.cpu for stall in self.stalled} | self.starved.keys()

    @cached_property
    def answers(self) -> list[CpuWait]:
        """Return the CPUs that wait for other CPUs to answer."""
        return self.stalls.waiting_for_answers()

    @cached_property
    def grace_period(self) -> Optional[GracePeriod]:
        """Return RCU's grace period if one is running."""
        return running_grace_period(self.reader, self.lister.clocks)

    @cached_property
    def waiting_works(self) -> list[Waiting]:
        """Return the works that wait in workqueues."""
        return list(Workqueues(self.lister).waiting())

    def works_of(self, cpu: int) -> int:
        """Return how many works wait for the workers of a CPU."""
        return sum(one.works for one in self.waiting_works if one.cpu == cpu)

    @cached_property
    def sockets(self) -> list[Socket]:
        """Return all sockets."""
        return Sockets(self.reader, self.threads).all()

    @cached_property
    def meminfo(self) -> dict[str, int]:
        """Return the lines of /proc/meminfo in bytes, without those that count pages."""
        return {line.name: line.value << 10 for line in Meminfo(self.reader).lines() if line.unit}

    def event(self, name: str) -> Optional[int]:
        """Return a counter of /proc/vmstat's events, summed over all CPUs, or None."""
        number = self.reader.constant(name)
        if number is None:
            return None
        total = 0
        for cpu in self.reader.cpus():
            with self.reader.reading("counters of events"):
                total += int(self.reader.percpu_variable("vm_event_states", cpu).event[number])
        return total
