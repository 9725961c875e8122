"""Workqueues: the works in flight and those that wait, by pool, and the workers that run them (kernel/workqueue.c).

A workqueue has a part (struct pool_workqueue) in each pool of workers that serves it. A work that is queued goes into
the list of its pool, or, once the part has as many active works as it may have, into the part's own list of inactive
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.tasks import Task

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.processes import Processes

_MOST_WORKS = 1 << 16  # of one list
_MOST_NODES = 1 << 10  # of NUMA: MAX_NUMNODES
_NAMED = 8
_PROGRESS = ("last_progress_ts", "watchdog_ts")  # when a pool last began a work, in ticks: its name in 7.2, and before
_BUCKETS = 64  # BUSY_WORKER_HASH_ORDER is 6 (kernel/workqueue.c)
_INACTIVE = ("inactive_works", "delayed_works")  # the name since 5.15, and before
_HAS_PART = 1 << 2  # WORK_STRUCT_PWQ: the work's data has its pool_workqueue (include/linux/workqueue.h)
_UNBOUND = 1 << 1  # WQ_UNBOUND
_NO_LIMIT = (1 << 31) - 1  # INT_MAX, of workqueues of softirqs
_BARRIER, _DELAYED = "wq_barrier_func", "delayed_work_timer_fn"
#: Flags of a pool, by the names of their enumerators. The numbers have changed in 6.9.
_POOL_FLAGS = {"POOL_BH": "bh", "POOL_MANAGER_ACTIVE": "managing", "POOL_DISASSOCIATED": "unbound"}


class Works(NamedTuple):
    """Works with the same function that follow each other in a list. ``address`` is the first one's work_struct.

    ``flusher`` is the task that waits for all works before this one. Such a work is a mark (struct wq_barrier).
    """

    function: str
    number: int
    address: int
    flusher: Optional[Task]


class Busy(NamedTuple):
    """A worker that runs a work: its task, the task's state (a letter of ps) and ns in it, the work's function.

    ``ran`` is for how many ns the work has run, and ``exact`` whether the kernel says so: else it is a lower bound.
    ``task`` is None for a worker of softirqs (BH, since 6.9). ``behind`` are works that only this worker can run.
    """

    task: Optional[Task]
    state: str
    age: Optional[int]
    wchan: str
    function: str
    queue: int  # the address of its pool_workqueue
    work: int  # the address of the work_struct; the work may have freed it
    ran: Optional[int]
    exact: bool
    rescuer: bool
    description: str
    behind: list[Works]


class Pool(NamedTuple):
    """A pool of workers. ``cpu`` is None for one that is not bound to a CPU, ``node`` for one of no NUMA node.

    ``since`` is for how many ns the pool has begun no work, None if the kernel does not note it.
    """

    address: int
    number: int
    cpu: Optional[int]
    cpus: str
    node: Optional[int]
    nice: int
    bits: int
    flags: list[str]
    workers: int
    idle: int
    manager: Optional[Task]
    since: Optional[int]
    busy: list[Busy]
    works: dict[int, list[Works]]  # the works that wait, by the address of their pool_workqueue (0: not known)
    first: Optional[int]  # the address of the first work that waits

    @property
    def waiting(self) -> int:
        """Return the number of works that wait for a worker."""
        return sum(one.number for each in self.works.values() for one in each)


class Part(NamedTuple):
    """A workqueue's part in a pool. ``most`` is how many of its works may be active, None without a limit."""

    address: int
    pool: Pool
    active: int
    most: Optional[int]
    references: int
    mayday: bool
    running: list[Busy]
    pending: list[Works]
    inactive: list[Works]


class Queue(NamedTuple):
    """A workqueue. ``most`` is its max_active, ``rescuer`` the task that runs its works where memory is short."""

    address: int
    name: str
    flags: int
    most: int
    rescuer: Optional[Task]
    parts: list[Part]


class Delayed(NamedTuple):
    """A work that a timer will queue. ``due`` is in ns from the dump on, negative if it is late."""

    queue: str
    cpu: int
    due: Optional[int]
    function: str
    address: int


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
        self._pools: dict[int, Pool] = {}

    @cached_property
    def queues(self) -> list[Queue]:
        """Return all workqueues, in the order of the kernel's list."""
        head = self._reader.symbol("workqueues")
        nodes = () if head is None else self._reader.linked(head.address_ or 0, "workqueues")
        found: list[Queue] = []
        for queue in self._reader.objects("struct workqueue_struct", "list", nodes):
            with self._reader.reading("workqueues"):
                found.append(self._queue(queue))
        return found

    @property
    def pools(self) -> list[Pool]:
        """Return the pools that serve workqueues, by their numbers."""
        parts = (part for queue in self.queues for part in queue.parts)
        return sorted({part.pool.address: part.pool for part in parts}.values(), key=lambda pool: pool.number)

    def delayed(self) -> Iterator[Delayed]:
        """Yield the works that timers will queue."""
        from drgnext.kernel.system.timers import timers

        for timer in timers(self._reader):
            if timer.function == _DELAYED:
                with self._reader.reading("delayed works"):
                    at = timer.address - self._reader.offset("struct delayed_work", "timer")
                    delayed = self._reader.pointer("struct delayed_work", at)
                    name = self._reader.string(delayed.wq.name, 64) if delayed.wq.value_() else ""
                    function = self._reader.function(delayed.work.func.value_())
                    yield Delayed(name, timer.cpu, timer.expires, function, delayed.work.address_ or at)

    def waiting(self) -> Iterator[Waiting]:
        """Yield the pools and the workqueues where works wait."""
        for queue in self.queues:
            for part in queue.parts:
                if part.inactive:
                    waiting = _counted(part.inactive)
                    yield Waiting(part.pool.cpu, queue.name, *waiting, None, part.running, part.address)
        for pool in self.pools:
            if pool.works and pool.since is not None:
                waiting = _counted([one for each in pool.works.values() for one in each])
                yield Waiting(pool.cpu, "", *waiting, pool.since, pool.busy, pool.address)

    def _queue(self, queue: Object) -> Queue:
        name, flags = self._reader.string(queue.name, 64), int(queue.flags)
        # Since 6.9 the workqueue itself has the limit that holds now. Before, its parts have it.
        most = int(queue.max_active if self._reader.has_member(queue[0], "max_active") else queue.saved_max_active)
        parts: list[Part] = []
        pwqs = self._reader.linked(queue.pwqs.address_ or 0, "parts of workqueues")
        for part in self._reader.objects("struct pool_workqueue", "pwqs_node", pwqs):
            with self._reader.reading("parts of workqueues"):
                parts.append(self._part(part, queue, flags, most))
        rescuer = self._task(queue.rescuer.task.value_()) if queue.rescuer.value_() else None
        return Queue(queue.value_(), name, flags, most, rescuer, parts)

    def _part(self, part: Object, queue: Object, flags: int, most: int) -> Part:
        at = part.value_()
        pool = self._pool(part.pool)
        limit: Optional[int] = most
        if self._reader.has_member(part[0], "max_active"):
            limit = int(part.max_active)
        elif flags & _UNBOUND:
            limit = self._most_of_node(queue, pool)
        if limit is not None and limit >= _NO_LIMIT:
            limit = None
        inactive = next(part.member_(name) for name in _INACTIVE if self._reader.has_member(part[0], name))
        mayday = part.mayday_node.address_of_().value_()
        running = [one for one in pool.busy if one.queue == at]
        works = list(self._works(inactive)) if self._filled(inactive) else []
        return Part(
            *(at, pool, int(part.nr_active), limit, int(part.refcnt), self._reader.memory.word(mayday) != mayday),
            *(running, pool.works.get(at, []), [one for _part, one in works]),
        )

    def _most_of_node(self, queue: Object, pool: Pool) -> Optional[int]:
        """Return how many works of an unbound workqueue may be active on the pool's node (since 6.9).

        The numbers of the nodes stand in an array; that for pools of no node is the last (wq_node_nr_active()).
        """
        nodes = self._reader.symbol("nr_node_ids")
        last = int(nodes) if nodes is not None else 1
        if not self._reader.has_member(queue[0], "node_nr_active") or not 0 < last <= _MOST_NODES:
            return None
        index = pool.node if pool.node is not None and pool.node < last else last
        count = queue.node_nr_active[index]
        return int(count.max) if count.value_() else None

    def _filled(self, head: Object) -> bool:
        """Return whether a list has nodes. Most have none, and a word tells."""
        return self._reader.memory.word(head.address_ or 0) != head.address_

    def _pool(self, pool: Object) -> Pool:
        at = pool.value_()
        if at not in self._pools:
            self._pools[at] = self._read_pool(pool)
        return self._pools[at]

    def _read_pool(self, pool: Object) -> Pool:
        moment = next((name for name in _PROGRESS if self._reader.has_member(pool[0], name)), None)
        since = None if moment is None else self._clocks.since_jiffies(int(pool.member_(moment)))
        works: dict[int, list[Works]] = {}
        first = None
        for part, one in self._works(pool.worklist):
            works.setdefault(part, []).append(one)
            first = one.address if first is None else first
        cpu, node, bits = int(pool.cpu), int(pool.node), int(pool.flags)
        flags = [word for name, word in _POOL_FLAGS.items() if bits & (self._reader.constant(name) or 0)]
        manager = self._task(pool.manager.task.value_()) if pool.manager.value_() else None
        return Pool(
            pool.value_(),
            int(pool.id),
            cpu if cpu >= 0 else None,
            self._cpus(pool),
            node if node >= 0 else None,
            int(pool.attrs.nice),
            bits,
            flags,
            int(pool.nr_workers),
            int(pool.nr_idle),
            manager,
            since,
            list(self._workers(pool, since)),
            works,
            first,
        )

    def _cpus(self, pool: Object) -> str:
        """Return the CPUs where the pool's workers may run, as "0-3,6"."""
        from drgn.helpers.linux.cpumask import cpumask_to_cpulist

        with self._reader.reading("masks of CPUs"):
            return str(cpumask_to_cpulist(pool.attrs.cpumask))
        return ""

    def _task(self, address: int) -> Optional[Task]:
        return self._processes.threads.tasks.at(address) if address else None

    def _works(self, head: Object) -> Iterator[tuple[int, Works]]:
        """Yield (address of the pool_workqueue or 0, works) of a list. Neighbours with the same function are one."""
        last: Optional[tuple[int, Works]] = None
        nodes = islice(self._reader.linked(head.address_ or 0, "works"), _MOST_WORKS)
        for work in self._reader.objects("struct work_struct", "entry", nodes):
            part, one = self._work(work)
            if last is not None and last[0] == part and last[1].function == one.function and one.flusher is None:
                last = part, last[1]._replace(number=last[1].number + 1)
                continue
            if last is not None:
                yield last
            last = part, one
        if last is not None:
            yield last

    def _work(self, work: Object) -> tuple[int, Works]:
        function = self._reader.function(work.func.value_())
        data = int(work.data.counter) & 0xFFFFFFFFFFFFFFFF
        part = data >> self._flag_bits << self._flag_bits if data & _HAS_PART else 0
        flusher = None
        if function == _BARRIER:
            with self._reader.reading("marks of flushes"):
                at = work.value_() - self._reader.offset("struct wq_barrier", "work")
                flusher = self._task(self._reader.pointer("struct wq_barrier", at).task.value_())
        return part, Works(function, 1, work.value_(), flusher)

    @cached_property
    def _flag_bits(self) -> int:
        """Return how many low bits of a work's data are flags: 8, or 9 with CONFIG_DEBUG_OBJECTS_WORK.

        The enumerator's name has changed in 6.10.
        """
        names = ("WORK_STRUCT_PWQ_SHIFT", "WORK_STRUCT_FLAG_BITS")
        found = next((value for name in names if (value := self._reader.constant(name)) is not None), 8)
        return found if 0 < found < 16 else 8

    def _workers(self, pool: Object, since: Optional[int]) -> Iterator[Busy]:
        """Yield the workers of a pool that run a work."""
        for bucket in islice(pool.busy_hash, _BUCKETS):
            first = bucket.first.value_()
            nodes: Iterable[int] = self._reader.hashed(first, "workers") if first else ()
            for worker in self._reader.objects("struct worker", "hentry", nodes):
                with self._reader.reading("workers"):
                    yield self._worker(worker, since)

    def _worker(self, worker: Object, since: Optional[int]) -> Busy:
        """Describe a worker. ``since`` is for how many ns its pool has begun no work: so its own is as old."""
        task = self._task(worker.task.value_())
        state, age, wchan = "", None, ""
        if task is not None:
            known = self._processes.process(task)
            state, age, wchan = known.state, known.age, known.wchan
        exact = self._reader.has_member(worker[0], "current_start")
        ran = self._clocks.since_jiffies(int(worker.current_start)) if exact else None
        if ran is None:
            # A worker that sleeps, or waits for a CPU, does so within its work. One on a CPU may have ended others.
            within = age if task is not None and not task.on_cpu else None
            exact, ran = False, max((one for one in (since, within) if one is not None), default=None)
        return Busy(
            *(task, state, age, wchan, self._reader.function(worker.current_func.value_())),
            *(worker.current_pwq.value_(), worker.current_work.value_(), ran, exact, bool(worker.rescue_wq.value_())),
            *(self._reader.string(worker.desc, 64), [one for _part, one in self._works(worker.scheduled)]),
        )


def _counted(works: list[Works]) -> tuple[int, list[str]]:
    """Return the number of works, and their first few functions."""
    return sum(one.number for one in works), list(dict.fromkeys(one.function for one in works))[:_NAMED]
