"""Show what each CPU runs, and what waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.tasks import Task

if TYPE_CHECKING:
    from drgnext.kernel.system.processes import Processes

_QUEUED = 1  # TASK_ON_RQ_QUEUED (kernel/sched/sched.h)
#: include/uapi/linux/sched.h
POLICIES = {0: "normal", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline", 7: "ext"}

#: A task of these runs before all others, for as long as it likes (but for sched_rt_runtime_us).
_REALTIME = ("fifo", "rr", "deadline")


class Queued(NamedTuple):
    """A task that a CPU runs, or that waits for it. ``age`` is how long it has run or waited, in ns.

    ``throttled``: it may not run, as its control group has used up its quota (cpu.max).
    """

    task: Task
    running: bool
    priority: int
    policy: str
    age: Optional[int]
    throttled: bool = False


class RunQueue(NamedTuple):
    """A CPU's run queue. ``running`` is the kernel's own number of tasks, ``lag`` how many ns its clock is behind."""

    cpu: int
    running: int
    current: Optional[Task]
    lag: Optional[int]
    tasks: list[Queued]
    address: int

    @property
    def running_task(self) -> Optional[Queued]:
        """Return the task that runs, None if the CPU is idle."""
        return next((one for one in self.tasks if one.running), None)

    @property
    def realtime(self) -> str:
        """Return the policy of a realtime task that runs, "" if none does."""
        task = self.running_task
        return task.policy if task is not None and task.policy in _REALTIME else ""


def run_queues(processes: Processes) -> list[RunQueue]:
    """Return the run queue of each CPU that has one.

    The tasks come from the list of all tasks, not from the queues' trees: a damaged tree hides no task.
    """
    reader, threads = processes.reader, processes.threads
    queued: dict[int, list[Queued]] = {}
    delayed = reader.has("struct sched_entity", "sched_delayed")  # since 6.12: sleeps already, and is still in the tree
    quotas = reader.has("struct cfs_rq", "throttle_count")  # CONFIG_CFS_BANDWIDTH
    for task in threads.tasks.all():
        with reader.reading("tasks"):
            thing = threads.task_object(task)
            cpu = threads.cpu_of(task)
            waits = int(thing.on_rq) == _QUEUED and not (delayed and int(thing.se.sched_delayed))
            if cpu is None or not task.pid or not (task.on_cpu or waits):
                continue
            age = processes.clocks.since_arrival(thing) if task.on_cpu else processes.clocks.since_queued(thing)
            number = int(thing.policy)
            policy = POLICIES.get(number, str(number))
            throttled = quotas and bool(int(thing.se.cfs_rq.throttle_count))
            queued.setdefault(cpu, []).append(Queued(task, task.on_cpu, int(thing.prio), policy, age, throttled))
    found = []
    for cpu in reader.cpus():
        with reader.reading("run queues"):
            queue = reader.percpu_variable("runqueues", cpu)
            tasks = sorted(queued.get(cpu, []), key=lambda one: (not one.running, one.priority, -(one.age or 0)))
            current = threads.tasks.at(queue.curr.value_()) if queue.curr.value_() else None
            lag = processes.clocks.since(int(queue.clock))
            found.append(RunQueue(cpu, int(queue.nr_running), current, lag, tasks, queue.address_ or 0))
    return found
