"""RCU's grace period, and the CPUs that hold it up."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple

if TYPE_CHECKING:
    from drgnext.kernel.system.ages import Clocks
    from drgnext.kernel.system.reading import Reader

_STATE = 3  # RCU_SEQ_STATE_MASK (kernel/rcu/rcu.h): 0 is idle
_MOST_NODES = 4096


class GracePeriod(NamedTuple):
    """A grace period that is running. ``age`` is ns since its start.

    ``cpus`` have not passed a quiescent state. With ``tasks``, tasks that were preempted in a reader hold it up, too.
    """

    age: Optional[int]
    cpus: list[int]
    tasks: bool


def running_grace_period(reader: Reader, clocks: Clocks) -> Optional[GracePeriod]:
    """Return the grace period that is running, None if RCU is idle or cannot be read (tiny RCU)."""
    state = reader.symbol("rcu_state")
    if state is None:
        return None
    with reader.reading("grace periods"):
        if not int(state.gp_seq) & _STATE:
            return None
        cpus: list[int] = []
        tasks = False
        leaves = int(reader.prog["rcu_num_lvls"]) - 1
        for node in islice(state.node, _MOST_NODES):
            if int(node.level) == leaves:
                mask = int(node.qsmask)
                cpus += [int(node.grplo) + bit for bit in range(64) if mask >> bit & 1]
                tasks |= bool(node.gp_tasks.value_())
        possible = set(reader.cpus())
        age = clocks.since_jiffies(int(state.gp_start))
        return GracePeriod(age, sorted(cpu for cpu in cpus if cpu in possible), tasks)
    return None
