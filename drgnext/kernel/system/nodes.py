"""The NUMA nodes of a machine, and how the free memory of its zones lies."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.reading import number

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_MOST_NODES = 1 << 10  # MAX_NUMNODES
_MOST_ORDERS = 64


class Node(NamedTuple):
    """A node with memory. All are pages.

    ``files`` are page cache on the lists for reclaim. ``orders`` has the number of free blocks of 2^i pages at i, as
    /proc/buddyinfo adds them over the node's zones.
    """

    number: int
    managed: int
    free: int
    files: int
    orders: list[int]
    address: int


def nodes(reader: Reader) -> list[Node]:
    """Return the nodes that have memory."""
    found = []
    for node in _online(reader):
        with reader.reading("nodes"):
            zones = [zone for zone in node.node_zones if number(zone.managed_pages) > 0]
            orders: list[int] = []
            for zone in zones:
                free = [int(area.nr_free) for area in islice(zone.free_area, _MOST_ORDERS)]
                orders = [
                    (orders[order] if order < len(orders) else 0) + (free[order] if order < len(free) else 0)
                    for order in range(max(len(orders), len(free)))
                ]
            if zones:
                found.append(
                    Node(
                        int(node.node_id),
                        sum(number(zone.managed_pages) for zone in zones),
                        _counted(reader, zones, "NR_FREE_PAGES"),
                        _counted(reader, zones, "NR_ZONE_INACTIVE_FILE")
                        + _counted(reader, zones, "NR_ZONE_ACTIVE_FILE"),
                        orders,
                        node.value_(),
                    )
                )
    return found


def _online(reader: Reader) -> Iterator[Object]:
    """Yield ``struct pglist_data *`` of each node that is online."""
    from drgn.helpers.linux.mmzone import for_each_online_pgdat

    with reader.reading("nodes"):
        yield from islice(for_each_online_pgdat(reader.prog), _MOST_NODES)


def _counted(reader: Reader, zones: list[Object], item: str) -> int:
    """Return a counter of the zones. What each CPU has not added yet is less than a MB."""
    index = reader.constant(item)
    return 0 if index is None else sum(max(0, int(zone.vm_stat[index].counter)) for zone in zones)
