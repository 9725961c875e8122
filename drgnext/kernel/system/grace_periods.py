"""RCU's grace period, and the CPUs that hold it up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.ages import Clocks
    from drgnext.kernel.system.reading import Reader

_STATE = 3  # RCU_SEQ_STATE_MASK (kernel/rcu/rcu.h): 0 is idle
_MOST_NODES = 4096
_MOST_READERS = 64  # of a leaf


class GracePeriod(NamedTuple):
    """A grace period that is running. ``age`` is ns since its start.

    ``cpus`` have not passed a quiescent state. ``tasks`` are the addresses of those that were preempted, or went
    to sleep, in a reader that began before it.
    """

    age: Optional[int]
    cpus: list[int]
    tasks: list[int]


def running_grace_period(reader: Reader, clocks: Clocks) -> Optional[GracePeriod]:
    """Return the grace period that is running, None if RCU is idle or cannot be read (tiny RCU)."""
    state = reader.symbol("rcu_state")
    if state is None:
        return None
    with reader.reading("grace periods"):
        if not int(state.gp_seq) & _STATE:
            return None
        cpus: list[int] = []
        tasks: list[int] = []
        leaves = int(reader.prog["rcu_num_lvls"]) - 1
        for node in islice(state.node, _MOST_NODES):
            if int(node.level) == leaves:
                mask = int(node.qsmask)
                cpus += [int(node.grplo) + bit for bit in range(64) if mask >> bit & 1]
                tasks += _readers(reader, node)
        possible = set(reader.cpus())
        age = clocks.since_jiffies(int(state.gp_start))
        return GracePeriod(age, sorted(cpu for cpu in cpus if cpu in possible), tasks)
    return None


def _readers(reader: Reader, node: Object) -> Iterator[int]:
    """Yield the tasks of a leaf that hold up the grace period: from gp_tasks to the end of its list of readers."""
    first = node.gp_tasks.value_()
    if first:
        linked = reader.linked(node.blkd_tasks.address_ or 0, "readers of RCU")
        offset = reader.offset("struct task_struct", "rcu_node_entry")
        for entry in islice(dropwhile(lambda at: at != first, linked), _MOST_READERS):
            yield entry - offset
