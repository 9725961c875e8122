"""The share of their limits that processes and the machine have used: open files, mappings, tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.threads import Threads
from drgnext.kernel.system.processes import Process
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgn import Object

_RLIMIT_NOFILE = 7  # include/uapi/asm-generic/resource.h
_MOST_FILES = 1 << 20  # fs.nr_open
_MOST = 1 << 62  # a larger limit means that there is no limit (RLIM_INFINITY)


class Use(NamedTuple):
    """The use of one limit. ``who`` is the process or the machine; ``name`` is what raises the limit."""

    who: str
    what: str
    used: int
    limit: int
    name: str
    error: str
    address: int = 0
    next: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Return the part that is used."""
        return self.used / self.limit


def machine_uses(reader: Reader, tasks: int) -> Iterator[Use]:
    """Yield the open files and the tasks of the machine against their limits."""
    files, opened = _variable(reader, "files_stat", "file_table.c"), _variable(reader, "nr_files", "file_table.c")
    with reader.reading("limits of the machine"):
        limit = int(files.max_files) if files is not None else 0
        if opened is not None and 0 < limit < _MOST:
            used = reader.counter(opened)
            yield Use("the machine", "open files", used, limit, "fs.file-max", "ENFILE", next=("files",))
        threads = _variable(reader, "max_threads", "fork.c")
        if threads is not None and int(threads) > 0:
            yield Use("the machine", "tasks", tasks, int(threads), "kernel.threads-max", "EAGAIN", next=("ps",))


def _variable(reader: Reader, name: str, file: str) -> Optional[Object]:
    """Return the variable of that file, or None if this kernel does not have it."""
    try:
        return reader.prog.variable(name, file)
    except LookupError:
        return None


def process_uses(reader: Reader, threads: Threads, processes: Iterable[Process]) -> Iterator[Use]:
    """Yield the open files and mappings of each process against its limits."""
    symbol = reader.symbol("sysctl_max_map_count")
    most = int(symbol) if symbol is not None else 0
    for one in processes:
        if one.task.pid != one.task.tgid or one.kernel_thread:
            continue
        who, pid = f"{one.task.comm} ({one.task.pid})", one.task.pid
        with reader.reading("limits of processes"):
            task = threads.task_object(one.task)
            limit = int(task.signal.rlim[_RLIMIT_NOFILE].rlim_cur)
            if task.files.value_() and 0 < limit < _MOST:
                used = _open_files(reader, task)
                name, address = "RLIMIT_NOFILE (ulimit -n)", one.task.address
                yield Use(who, "open files", used, limit, name, "EMFILE", address, (f"files {pid}",))
            if task.mm.value_() and most > 0:
                used = int(task.mm.map_count)
                yield Use(who, "mappings", used, most, "vm.max_map_count", "ENOMEM", one.task.address, ("ps",))


def _open_files(reader: Reader, task: Object) -> int:
    """Return how many bits the bitmap of open descriptors has."""
    table = task.files.fdt
    count = min(int(table.max_fds), _MOST_FILES) // 8
    data = reader.memory.read(table.open_fds.value_(), count)
    return bin(int.from_bytes(data, "little")).count("1")
