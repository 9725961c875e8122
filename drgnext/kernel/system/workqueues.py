"""Works that wait in workqueues, and the workers that they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.tasks import Task

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.processes import Processes

_MOST_WORKS = 1 << 16
_NAMED = 8
_PROGRESS = ("last_progress_ts", "watchdog_ts")  # when a pool last began a work, in ticks: its name in 7.2, and before
_BUCKETS = 64  # BUSY_WORKER_HASH_ORDER is 6 (kernel/workqueue.c)


class Busy(NamedTuple):
    """A worker that runs a work: its task, the task's state (a letter of ps) and ns in it, the work's function."""

    task: Task
    state: str
    age: Optional[int]
    wchan: str
    function: str
    queue: int  # the address of its pool_workqueue


class Waiting(NamedTuple):
    """Works that wait. ``names`` are their workqueues ("" where not known), ``functions`` the works' own.

    ``cpu`` is that of the pool, None for an unbound one. ``age`` is for how many ns the pool has begun no work,
    None for works behind the limit of their own workqueue (max_active). ``workers`` are what they wait for.
    """

    cpu: Optional[int]
    name: str
    works: int
    functions: list[str]
    age: Optional[int]
    workers: list[Busy]
    address: int


class Workqueues:
    """The workqueues of one kernel."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._reader = processes.reader
        self._clocks = processes.clocks
        self._busy: dict[int, list[Busy]] = {}  # by the pool's address

    def waiting(self) -> Iterator[Waiting]:
        """Yield the pools and the workqueues where works wait."""
        pools: set[int] = set()
        head = self._reader.symbol("workqueues")
        nodes = () if head is None else self._reader.linked(head.address_ or 0, "workqueues")
        for queue in self._reader.objects("struct workqueue_struct", "list", nodes):
            with self._reader.reading("workqueues"):
                name = self._reader.string(queue.name, 64)
                pwqs = self._reader.linked(queue.pwqs.address_ or 0, "parts of workqueues")
                for part in self._reader.objects("struct pool_workqueue", "pwqs_node", pwqs):
                    with self._reader.reading("parts of workqueues"):
                        yield from self._of_part(part, name)
                        pool = part.pool
                        if pool.value_() not in pools:
                            pools.add(pool.value_())
                            yield from self._of_pool(pool)

    def _of_part(self, part: Object, name: str) -> Iterator[Waiting]:
        """Yield the works behind the limit of a workqueue. The list's name has changed in 5.15."""
        works = part.inactive_works if self._reader.has_member(part[0], "inactive_works") else part.delayed_works
        count, functions = self._works(works)
        if count:
            workers = [one for one in self._workers(part.pool) if one.queue == part.value_()]
            yield Waiting(self._cpu(part.pool), name, count, functions, None, workers, part.value_())

    def _of_pool(self, pool: Object) -> Iterator[Waiting]:
        count, functions = self._works(pool.worklist)
        moment = next((name for name in _PROGRESS if self._reader.has_member(pool[0], name)), None)
        if count and moment is not None:
            age = self._clocks.since_jiffies(int(pool.member_(moment)))
            yield Waiting(self._cpu(pool), "", count, functions, age, self._workers(pool), pool.value_())

    def _cpu(self, pool: Object) -> Optional[int]:
        cpu = int(pool.cpu)
        return cpu if cpu >= 0 else None

    def _works(self, head: Object) -> tuple[int, list[str]]:
        """Return the number of works in a list, and their functions. Marks of a flush (wq_barrier) are works, too."""
        functions: list[str] = []
        count = 0
        nodes = islice(self._reader.linked(head.address_ or 0, "works"), _MOST_WORKS)
        for work in self._reader.objects("struct work_struct", "entry", nodes):
            count += 1
            if len(functions) < _NAMED:
                name = self._reader.function(work.func.value_())
                if name not in functions:
                    functions.append(name)
        return count, functions

    def _workers(self, pool: Object) -> list[Busy]:
        """Return the workers of a pool that run a work."""
        at = pool.value_()
        if at not in self._busy:
            found: list[Busy] = []
            self._busy[at] = found
            for bucket in islice(pool.busy_hash, _BUCKETS):
                first = bucket.first.value_()
                nodes = self._reader.hashed(first, "workers") if first else ()
                for worker in self._reader.objects("struct worker", "hentry", nodes):
                    with self._reader.reading("workers"):
                        found.extend(self._worker(worker))
        return self._busy[at]

    def _worker(self, worker: Object) -> Iterator[Busy]:
        task = self._processes.threads.tasks.at(worker.task.value_())
        if task is not None:
            known = self._processes.process(task)
            function = self._reader.function(worker.current_func.value_())
            yield Busy(task, known.state, known.age, known.wchan, function, worker.current_pwq.value_())
