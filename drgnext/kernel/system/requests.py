"""Requests that block devices have not answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.ages import Clocks
from drgnext.kernel.system.xarrays import XArray

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_MOST_TAGS = 1 << 16
_MOST_QUEUES = 1 << 12
_STATES = {1: "in flight", 2: "completed"}  # enum mq_rq_state


class Request(NamedTuple):
    """A request that the driver has and the kernel has not finished. ``age`` is ns since it was made."""

    queue: int
    tag: int
    operation: str
    sector: int
    size: int
    age: Optional[int]
    state: str
    address: int


class Disk(NamedTuple):
    """A disk. ``counted`` is the kernel's number of requests in flight, None without statistics."""

    name: str
    queues: int
    scheduler: str
    counted: Optional[int]
    requests: list[Request]
    address: int


def disks(reader: Reader) -> list[Disk]:
    """Return all disks, by name, each with its requests."""
    clocks = Clocks(reader)
    operations = _operations(reader)
    found = []
    for disk in gendisks(reader):
        with reader.reading("disks"):
            queue = disk.queue
            requests = list(_requests(reader, queue, clocks, operations)) if queue.value_() else []
            elevator = queue.elevator if queue.value_() else None
            scheduler = "none"
            if elevator is not None and elevator.value_():
                scheduler = reader.string(elevator.type.elevator_name, 32)
            count = int(queue.nr_hw_queues) if queue.value_() else 0
            found.append(
                Disk(
                    reader.string(disk.disk_name, 64), count, scheduler, _counted(reader, disk), requests, disk.value_()
                )
            )
    return sorted(found, key=lambda one: one.name)


def gendisks(reader: Reader) -> Iterator[Object]:
    """Yield each ``struct gendisk *``. /sys/block has a link to each disk's folder."""
    base = reader.symbol("block_depr")
    if base is None or not base.value_():
        reader.note("this kernel has no /sys/block: its disks are not found")
        return
    embedded = reader.has("struct block_device", "bd_device")  # since 5.11
    kobj = reader.offset("struct device", "kobj")
    for node in reader.objects("struct kernfs_node", "rb", reader.tree(base.sd.dir.children, "disks")):
        with reader.reading("disks"):
            device = node.symlink.target_kn.priv.value_() - kobj
            if embedded:
                at = device - reader.offset("struct block_device", "bd_device")
                yield reader.pointer("struct block_device", at).bd_disk
            else:
                at = device - reader.offset("struct hd_struct", "__dev")
                yield reader.pointer("struct gendisk", at - reader.offset("struct gendisk", "part0"))


def _requests(reader: Reader, queue: Object, clocks: Clocks, operations: dict[int, str]) -> Iterator[Request]:
    """Yield the requests of a queue that a driver has started."""
    seen: set[int] = set()
    for hardware in hardware_queues(reader, queue):
        tags = hardware.tags
        if not tags.value_():
            continue
        for tag in range(min(int(tags.nr_tags), _MOST_TAGS)):
            with reader.reading("requests"):
                request = tags.rqs[tag]
                address = request.value_()
                if not address or address in seen:
                    continue
                seen.add(address)
                state = int(request.state)
                if request.q.value_() != queue.value_() or state not in _STATES:
                    continue
                yield _describe(request, int(hardware.queue_num), state, clocks, operations)


def _describe(request: Object, queue: int, state: int, clocks: Clocks, operations: dict[int, str]) -> Request:
    age = clocks.since_monotonic(int(request.start_time_ns))
    if age is None:  # a queue without statistics keeps no start; each request has a deadline in ticks
        age = clocks.since_jiffies(int(request.deadline) - int(request.timeout))
    operation = int(request.cmd_flags) & 0xFF
    return Request(
        queue,
        int(request.tag),
        operations.get(operation, str(operation)),
        int(request.member_("__sector")),
        int(request.member_("__data_len")),
        age,
        _STATES[state],
        request.value_(),
    )


def hardware_queues(reader: Reader, queue: Object) -> Iterator[Object]:
    """Yield each ``struct blk_mq_hw_ctx *`` of a queue. In 6.1 and 6.12 they are in an xarray."""
    if reader.has("struct request_queue", "hctx_table"):
        for _index, entry in XArray(reader, queue.hctx_table, "hardware queues").entries():
            yield reader.pointer("struct blk_mq_hw_ctx", entry)
        return
    if queue.queue_hw_ctx.value_():
        for number in range(min(int(queue.nr_hw_queues), _MOST_QUEUES)):
            if queue.queue_hw_ctx[number].value_():
                yield queue.queue_hw_ctx[number]


def _counted(reader: Reader, disk: Object) -> Optional[int]:
    """Return the number of reads and writes in flight, as /sys/block/NAME/inflight counts bios of the whole disk."""
    try:
        part = disk.part0
        statistics = part.bd_stats if reader.has("struct block_device", "bd_stats") else part.dkstats
        total = 0
        for cpu in reader.cpus():
            for each in reader.percpu(statistics, cpu).in_flight:
                total += int(each.a.counter)
    except (LookupError, AttributeError):
        return None
    return max(0, total)


def _operations(reader: Reader) -> dict[int, str]:
    """Return the names of operations: read, write, flush, discard, ..."""
    for name in ("enum req_op", "enum req_opf"):  # before 6.0 the second
        try:
            known = reader.prog.type(name).enumerators or ()
        except LookupError:
            continue
        return {value: text[len("REQ_OP_") :].lower() for text, value in known}
    return {0: "read", 1: "write"}
