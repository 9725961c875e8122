"""The queues of disks: how many requests they take, how many tasks wait for a place, and whose pages the requests have.

Read in block/blk-mq-tag.c and lib/sbitmap.c, from 5.10 to 7.x.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.ages import Clocks
from drgnext.kernel.system.requests import Disk, disks, hardware_queues

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_WAIT_QUEUES = 8  # SBQ_WAIT_QUEUES
_ANONYMOUS = 1  # PAGE_MAPPING_ANON, and the other low bits of page.mapping
_LOW_BITS = 3
_IDLE = 0  # enum mq_rq_state
_MOST_SHIFT = 6  # an unsigned long
_MOST_TAGS = 1 << 16

#: Whose pages a request reads or writes.
RAW, BUFFERED, OTHER = "raw", "buffered", "other"


class Queue(NamedTuple):
    """A disk and its queue. ``depth`` is how many requests the device takes at once, over all hardware queues.

    ``limit`` is nr_requests. ``waiting`` are the addresses of tasks that wait for a place. ``queued`` are the ages (ns)
    of requests that the scheduler still has, None where the queue keeps no times. ``pages`` counts requests in
    flight: RAW ones have a process's own memory (O_DIRECT), BUFFERED ones the page cache's.
    """

    disk: Disk
    depth: int
    limit: int
    waiting: list[int]
    queued: list[Optional[int]]
    pages: Counter[str]


def queues(reader: Reader) -> list[Queue]:
    """Return the queue of each disk that has one."""
    clocks = Clocks(reader)
    found = []
    for disk in disks(reader):
        if not disk.queues:
            continue
        with reader.reading("queues of disks"):
            queue = reader.pointer("struct gendisk", disk.address).queue
            depth = 0
            waiting: dict[int, None] = {}
            queued: list[Optional[int]] = []
            for hardware in hardware_queues(reader, queue):
                if hardware.tags.value_():
                    depth += int(hardware.tags.nr_tags)
                for tags in (hardware.tags, hardware.sched_tags):
                    if tags.value_():
                        waiting.update(dict.fromkeys(_waiting(reader, tags)))
                if hardware.sched_tags.value_():
                    queued.extend(_queued(reader, hardware.sched_tags, clocks))
            pages = Counter(_pages(reader, request.address) for request in disk.requests)
            found.append(Queue(disk, depth, int(queue.nr_requests), list(waiting), queued, pages))
    return found


def _queued(reader: Reader, tags: Object, clocks: Clocks) -> Iterator[Optional[int]]:
    """Yield the ages of the requests that the scheduler has and the driver does not."""
    bits = _places(tags).sb
    shift, size = min(int(bits.shift), _MOST_SHIFT), 1 << min(int(bits.shift), _MOST_SHIFT)
    for index in range(min(int(bits.map_nr), _MOST_TAGS)):
        word = bits.map[index]
        taken = int(word.word) & ~int(word.cleared)
        for bit in range(size if taken else 0):
            tag = (index << shift) + bit
            if taken >> bit & 1 and tag < int(tags.nr_tags):
                request = tags.static_rqs[tag]
                if request.value_() and int(request.state) == _IDLE and not request.io_start_time_ns.value_():
                    yield clocks.since_monotonic(int(request.start_time_ns))


def _places(tags: Object) -> Object:
    """Return the ``struct sbitmap_queue`` of tags. Until 5.15 it is pointed to."""
    from drgn import TypeKind

    places = tags.bitmap_tags
    return places[0] if places.type_.kind == TypeKind.POINTER else places


def _waiting(reader: Reader, tags: Object) -> Iterator[int]:
    """Yield the addresses of the tasks in blk_mq_get_tag()."""
    places = _places(tags)
    for number in range(_WAIT_QUEUES if places.ws.value_() else 0):
        head = places.ws[number].wait.head.address_of_().value_()
        for entry in reader.members(head, "struct wait_queue_entry", "entry", "tasks that wait for a request"):
            if entry.private.value_():
                yield entry.private.value_()


def _pages(reader: Reader, address: int) -> str:
    """Return whose memory a request reads or writes, by its first page."""
    from drgn import cast
    from drgn.helpers.linux.mm import compound_head

    with reader.reading("pages of requests"):
        bio = reader.pointer("struct request", address).bio
        if bio.value_() and bio.bi_io_vec.value_() and int(bio.bi_vcnt):
            page = compound_head(cast("struct page *", bio.bi_io_vec[0].bv_page))
            mapping = page.mapping.value_()
            if mapping & _LOW_BITS == _ANONYMOUS:
                return RAW
            if mapping and not mapping & _LOW_BITS:
                return BUFFERED
    return OTHER
