"""The use of a kernel's memory, to compare dumps: kinds of pages, slab caches and processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from drgnext.commands._slabs import objects_of
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.pages.memmap import page_array
from drgnext.kernel.system.processes import Processes
from drgnext.kernel.system.reading import Reader

_SAME_BOOT = 10_000_000_000  # ns: how far the wall clock may be set between two dumps
_BOOT_ID = "sysctl_bootid"  # drivers/char/random.c: zeros until somebody has read /proc/sys/kernel/random/boot_id
_UUID = 16  # bytes

_PidAndStart = tuple[int, int]


class Slabs(NamedTuple):
    """The size of a slab cache: bytes of its slabs, and objects in use."""

    bytes: int
    objects: int


class Program(NamedTuple):
    """A process: its name, and the bytes that it has in memory and in swap."""

    name: str
    bytes: int


@dataclass
class MemoryUse:
    """The use of memory in one dump.

    ``kinds`` are bytes by the names of drgnext.kernel.pages.kinds. ``programs`` are known by pid and ns of their start
    since boot. ``uptime`` and ``boot`` (since 1970) are ns; None where the dump does not have them. ``boot_id`` is the
    kernel's own name of this run, b"" where nobody has asked for it. ``exact``: no list of free objects is cut.
    """

    total: int
    kinds: Mapping[str, int]
    caches: Mapping[str, Slabs]
    programs: Mapping[_PidAndStart, Program]
    uptime: Optional[int]
    boot: Optional[int]
    boot_id: bytes
    exact: bool = True
    notes: list[str] = field(default_factory=list)


def memory_use(kernel: Kernel) -> MemoryUse:
    """Return the use of a kernel's memory."""
    reader = Reader(kernel)
    slabs = objects_of(kernel)
    page = 1 << page_array(kernel).layout["page_bits"]
    kinds = {name: pages * page for name, pages in slabs.counted.kinds.items()}
    caches: dict[str, Slabs] = {}
    usage = slabs.usage()
    for one in usage:
        before = caches.get(one.cache.name, Slabs(0, 0))  # caches of memory cgroups have the names of their roots
        caches[one.cache.name] = Slabs(before.bytes + one.pages * page, before.objects + one.in_use)
    processes = Processes(reader)
    programs = {
        (one.task.tgid, _start(reader, one.task.address)): Program(one.task.comm, one.rss + one.swap)
        for one in processes.all()
        if not one.kernel_thread
    }
    clocks = processes.clocks
    notes = [*slabs.notes, *dict.fromkeys(processes.threads.notes), *reader.notes]
    total = slabs.counted.total * page
    exact = not any(one.cut for one in usage)
    return MemoryUse(total, kinds, caches, programs, clocks.monotonic, clocks.boot, _boot_id(reader), exact, notes)


def same_boot(old: MemoryUse, now: MemoryUse) -> bool:
    """Return whether both are of one run of the machine, as far as the dumps know it."""
    if old.boot_id and now.boot_id:
        return old.boot_id == now.boot_id
    return old.boot is None or now.boot is None or abs(old.boot - now.boot) < _SAME_BOOT


def _start(reader: Reader, address: int) -> int:
    """Return when a task began, in ns since boot; 0 where it cannot be read."""
    from drgn import Object

    with reader.reading("times of tasks"):
        return int(Object(reader.prog, "struct task_struct *", address).start_time)
    return 0


def _boot_id(reader: Reader) -> bytes:
    found = reader.symbol(_BOOT_ID)
    with reader.reading("clocks"):
        if found is not None and found.address_ is not None:
            return reader.prog.read(found.address_, _UUID).strip(b"\0")
    return b""
