"""The open files of processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.paths import Paths

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_MOST_FILES = 1 << 20  # fs.nr_open
_S_IFMT = 0o170000
_KINDS = {
    0o010000: "pipe", 0o020000: "char", 0o040000: "dir", 0o060000: "block", 0o100000: "file", 0o120000: "link",
    0o140000: "socket", 0: "anon",
}  # fmt: skip
_ACCESS = {0: "r", 1: "w", 2: "rw", 3: "-"}
_UNHASHED = "(deleted)"


class Descriptor(NamedTuple):
    """An open file of a process: its number and its ``struct file *``."""

    number: int
    file: Object


class OpenFile(NamedTuple):
    """A file as /proc/PID/fd and fdinfo show it. ``flags`` are the kernel's, as octal there."""

    number: int
    kind: str
    access: str
    position: int
    flags: int
    inode: int
    path: str
    file: int


class Files:
    """The tables of open files of one kernel's processes."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._paths = Paths(reader)
        self._root_parent = reader.offset("struct dentry", "d_parent")

    def of(self, task: Object) -> Iterator[Descriptor]:
        """Yield the open files of a ``struct task_struct *``. A process that ends has none."""
        from drgn import Object

        table = task.files.fdt if task.files.value_() else None
        if table is None:
            return
        count = min(int(table.max_fds), _MOST_FILES)
        first = table.fd.value_()
        pointer = self._reader.prog.pointer_type(self._reader.prog.type("struct file"))
        data = self._reader.memory.read(first, 8 * count)
        if len(data) < 8 * count:
            self._reader.note(f"the table of open files at {first:#x} is not whole in the dump")
        for number in range(len(data) // 8):
            address = int.from_bytes(data[8 * number : 8 * number + 8], "little")
            if address:
                yield Descriptor(number, Object(self._reader.prog, pointer, address))

    def describe(self, descriptor: Descriptor) -> OpenFile:
        """Return what /proc would have said of an open file. Raises drgn.FaultError."""
        file = descriptor.file
        inode = file.f_inode
        mode, flags = int(inode.i_mode), int(file.f_flags)
        kind = _KINDS.get(mode & _S_IFMT, "?")
        number = int(inode.i_ino)
        return OpenFile(
            descriptor.number, kind, _ACCESS[flags & 3], int(file.f_pos), flags, number, self._path(file),
            file.value_(),
        )  # fmt: skip

    def _path(self, file: Object) -> str:
        """Return the path as /proc/PID/fd has it."""
        path = file.f_path
        dentry = path.dentry
        text = self._paths.path(path)
        return f"{text} {_UNHASHED}" if self._is_unhashed(dentry) else text

    def _is_unhashed(self, dentry: Object) -> bool:
        """Return whether the name was removed: d_unlinked(), which is not true of a root."""
        return not dentry.d_hash.pprev.value_() and dentry.d_parent.value_() != dentry.value_()


def holders(reader: Reader, tasks: Iterator[Object]) -> Iterator[tuple[Object, Descriptor]]:
    """Yield (task, open file) for each open file. Tasks that share a table, as threads do, are asked once."""
    files = Files(reader)
    seen: set[int] = set()
    for task in tasks:
        with reader.reading("tables of open files"):
            table = task.files.value_()
            if not table or table in seen:
                continue
            seen.add(table)
            for descriptor in files.of(task):
                yield task, descriptor
