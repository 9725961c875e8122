"""Requests of block devices. The block layer allocates them all when it finds the device: often megabytes for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from drgnext.kernel.pages.owners.claims import Claims
from drgnext.kernel.pages.owners.structures import Structures

if TYPE_CHECKING:
    from dmods._engine import PageLayout

_MOST_DISKS = 1 << 16
_MOST_QUEUES = 1 << 14  # of one disk
_MOST_BLOCKS = 1 << 16  # of pages, of one queue


def find(read: Structures, claims: Claims, layout: PageLayout) -> set[str]:
    """Claim the pages of requests. Return what this kernel has in another form."""
    other_forms = set()
    for queue in islice(_queues(read), _MOST_DISKS):
        try:
            for tags in _tags(read, queue):
                _requests(read, claims, layout, tags)
        except LookupError as error:
            other_forms.add(str(error))
    _integrity(read, claims)
    return other_forms


def _queues(read: Structures) -> Iterator[int]:
    """Yield the struct request_queue of each disk and partition: those of the class of block devices.

    Some come several times.
    """
    classes = read.linked(
        read.value("class_kset") + read.offset("struct kset.list"),
        read.offset("struct subsys_private.subsys.kobj.entry"),
    )
    wanted = read.variable("block_class")
    mine = next((one for one in classes if read.word(one, "struct subsys_private.class") == wanted), 0)
    if not mine:
        return
    devices = read.linked(
        mine + read.offset("struct subsys_private.klist_devices.k_list"),
        read.offset("struct device_private.knode_class.n_node"),
    )
    if read.has("struct block_device.bd_device"):  # since 5.11
        inside, queue = read.offset("struct block_device.bd_device"), "struct gendisk.queue"
        for device in devices:
            disk = read.word(read.word(device, "struct device_private.device") - inside, "struct block_device.bd_disk")
            yield read.word(disk, queue)
        return
    inside = read.offset("struct hd_struct.__dev")
    whole = read.offset("struct gendisk.part0")
    for device in devices:
        part = read.word(device, "struct device_private.device") - inside
        if read.number(part, "struct hd_struct.partno") == 0:
            yield read.word(part - whole, "struct gendisk.queue")


def _tags(read: Structures, queue: int) -> Iterator[int]:
    """Yield each struct blk_mq_tags of a queue: those of the device, and those of its I/O scheduler."""
    name = "struct request_queue"
    devices = read.word(queue, f"{name}.tag_set")
    count = min(max(read.number(devices, "struct blk_mq_tag_set.nr_hw_queues"), 0), _MOST_QUEUES)
    tags = read.word(devices, "struct blk_mq_tag_set.tags")
    if not tags:
        return  # a device of bios has no requests
    yield from (read.memory.word(tags + 8 * number) or 0 for number in range(count))
    if read.has("struct blk_mq_tag_set.shared_tags"):
        yield read.word(devices, "struct blk_mq_tag_set.shared_tags")
    if read.has(f"{name}.sched_shared_tags"):
        yield read.word(queue, f"{name}.sched_shared_tags")
    if read.has(f"{name}.hctx_table"):  # 5.18 to 6.17
        contexts = read.xarray(queue + read.offset(f"{name}.hctx_table"))
    else:
        array = read.word(queue, f"{name}.queue_hw_ctx")
        contexts = (read.memory.word(array + 8 * number) or 0 for number in range(count if array else 0))
    for context in islice(contexts, _MOST_QUEUES):
        yield read.word(context, "struct blk_mq_hw_ctx.sched_tags")


def _requests(read: Structures, claims: Claims, layout: PageLayout, tags: int) -> None:
    """Add the blocks of pages that hold the requests of a struct blk_mq_tags. page->private has the order of each."""
    if not read.new(tags):
        return
    head = tags + read.offset("struct blk_mq_tags.page_list")
    for page in islice(read.linked(head, layout["lru"]), _MOST_BLOCKS):
        order = read.memory.word(page + layout["private"])
        if order is None or order > 10 or claims.left <= 0:  # blk_mq_alloc_rqs() takes order 4 at most
            return
        claims.page("block", page, order)


def _integrity(read: Structures, claims: Claims) -> None:
    """Add the pages that are kept for checksums of blocks, since 7.0: a mempool of large blocks of pages."""
    name = "struct mempool"
    try:
        pool = read.variable("integrity_buf_pool")
        count, order = read.number(pool, f"{name}.curr_nr"), read.word(pool, f"{name}.pool_data")
        elements = read.word(pool, f"{name}.elements")
    except LookupError:
        return
    for number in range(min(max(count, 0), _MOST_QUEUES) if order <= 10 else 0):
        claims.page("block", read.memory.word(elements + 8 * number) or 0, order)
