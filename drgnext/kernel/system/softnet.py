"""The packets that each CPU has received: /proc/net/softnet_stat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.reading import number

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader


class Received(NamedTuple):
    """The packets of a CPU since boot. Each is a counter of 32 bits.

    ``dropped`` found its backlog full. ``squeezed`` is how often its time or budget was over before its packets were.
    """

    cpu: int
    processed: int
    dropped: int
    squeezed: int


def received(reader: Reader) -> list[Received]:
    """Return the counters of each possible CPU."""
    found = []
    for cpu in reader.cpus():
        with reader.reading("counters of packets"):
            data = reader.percpu_variable("softnet_data", cpu)
            found.append(Received(cpu, int(data.processed), _dropped(reader, data), int(data.time_squeeze)))
    return found


def _dropped(reader: Reader, data: Object) -> int:
    """Return the packets that a ``struct softnet_data`` dropped. 7.2 has a counter for each of two nodes."""
    if reader.has_member(data, "dropped"):
        return number(data.dropped)
    counters = data.drop_counters
    return number(counters.drops0) + number(counters.drops1)
