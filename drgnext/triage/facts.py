"""The facts that the checks of kernels look at. Each fact is computed once; the commands compute the same ones."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Optional

from dmods.finding import CannotCheck
from drgnext.kernel.crash.panic import Cause, find_panic
from drgnext.kernel.pages.memmap import REMEMBERED, Counted, PageArray, page_array
from drgnext.kernel.slabs.leaks import SlabLeaks, kernel_leaks
from drgnext.kernel.stacks.threads import Threads, kernel_threads
from drgnext.kernel.system.locks import Locks
from drgnext.kernel.system.meminfo import Meminfo
from drgnext.kernel.system.processes import Process, Processes
from drgnext.kernel.system.reading import Reader
from drgnext.kernel.system.sockets import Socket, Sockets

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel


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
