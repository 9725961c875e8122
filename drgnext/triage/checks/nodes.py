"""Unevenly spread memory: a NUMA node without any while another has plenty, and free memory in single pages."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.sizes import human_size
from dmods.finding import CERTAIN, LIKELY, POSSIBLE, SERIOUS, WASTE, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.nodes import Node, nodes
from drgnext.triage.facts import KernelFacts

_SHORT = 0.04  # of a node's memory is free or page cache
_PLENTY = 0.3
_FREE = 0.1  # of all memory, and so much
_LEAST = 64 << 20
_LARGE = 3  # PAGE_ALLOC_COSTLY_ORDER (include/linux/mmzone.h): 32 KB
_NAMED = 8
_WHOLE = 0.1  # of the free memory is in larger blocks


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield an imbalance of nodes, then the fragmentation of free memory."""
    found = nodes(facts.reader)
    page = facts.lister.page
    yield _measured(found, page)
    short = [node for node in found if _available(node) < _SHORT * node.managed]
    plenty = [node for node in found if _available(node) > _PLENTY * node.managed]
    if short and plenty:
        one, other = min(short, key=_available), max(plenty, key=_available)
        yield Finding(
            "numa-imbalance",
            WASTE,
            CERTAIN,
            f"node {one.number} has {_of(one, page)} free or in page cache, node {other.number} has {_of(other, page)}",
            "the tasks of the full node use memory far away: numactl --interleave, or spread the processes over nodes",
            [Evidence(one.address, f"struct pglist_data of node {one.number}")],
            ("ps", "meminfo"),
            weight=(_available(other) - _available(one)) * page,
            alternative="its tasks were bound there on purpose (numactl, cpusets)",
        )
    managed = sum(node.managed for node in found)
    orders = [(order, count) for node in found for order, count in enumerate(node.orders)]
    free = sum(count << order for order, count in orders)
    large = sum(count << order for order, count in orders if order >= _LARGE)
    if free >= _FREE * managed and free * page >= _LEAST and large < _WHOLE * free:
        largest = max((order for order, count in orders if count), default=0)
        yield Finding(
            "fragmented",
            SERIOUS,
            LIKELY,
            f"{human_size(free * page)} of {human_size(managed * page)} are free, and only {human_size(large * page)} "
            f"of them in blocks of {human_size(page << _LARGE)} or more (the largest: {human_size(page << largest)})",
            "large allocations fail: find who keeps single pages of the kernel; echo 1 >/proc/sys/vm/compact_memory "
            "helps only where pages can move",
            next=("memstat -v", "meminfo"),
            weight=free * page,
            remedy_confidence=POSSIBLE,
            alternative="nothing asks for large blocks: then no allocation failed (dmesg has none)",
        )


def _measured(found: list[Node], page: int) -> Measured:
    """Return what each node has left, and how much of the free memory lies in large blocks."""
    left = ", ".join(f"{_available(node) / max(1, node.managed):.0%}" for node in found[:_NAMED])
    orders = [(order, count) for node in found for order, count in enumerate(node.orders)]
    free = sum(count << order for order, count in orders)
    large = sum(count << order for order, count in orders if order >= _LARGE)
    nodes_ = "1 node has" if len(found) == 1 else f"{len(found)} nodes have"
    share = f"; {large / free:.0%} of the free memory is in blocks of {human_size(page << _LARGE)}" if free else ""
    return Measured(f"{nodes_} {left} free or in page cache{share}")


def _available(node: Node) -> int:
    return node.free + node.files


def _of(node: Node, page: int) -> str:
    return f"{human_size(_available(node) * page)} of {human_size(node.managed * page)}"


CHECK = Check(
    "nodes",
    "a NUMA node has 4 % left and another 30 %; a tenth of memory is free, and 90 % of that in blocks below 32 KB",
    run,
    needs=("processes",),
    seconds=30,
)
