"""Locks on files, as /proc/locks has them: flock(2), POSIX locks and those of open file descriptions, and leases.

Every lock that is held is on a list of the CPU that took it (file_lock_list, fs/locks.c). Those who wait for it are on
a list of its own. From 6.9 on the common part of locks and leases is struct file_lock_core (commit 3d40f78169).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.paths import Paths
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgn import Object

# fl_flags (include/linux/filelock.h)
_POSIX, _FLOCK, _DELEGATION, _LEASE, _OF_DESCRIPTION = 0x1, 0x2, 0x4, 0x20, 0x400
_KINDS = ((_OF_DESCRIPTION, "OFDLCK"), (_POSIX, "POSIX"), (_FLOCK, "FLOCK"), (_DELEGATION, "DELEG"), (_LEASE, "LEASE"))
_ACCESS = {0: "read", 1: "write", 2: "unlock"}  # fl_type: F_RDLCK, F_WRLCK, F_UNLCK
_END_OF_FILE = (1 << 63) - 1  # OFFSET_MAX
_MOST = 1 << 20


class FileLock(NamedTuple):
    """A lock on a file.

    ``pid`` is the process that took it; it may have ended since where the file was inherited. (For a lock of an open
    file description /proc/locks says -1.) ``start`` and ``end`` are bytes, both inclusive; ``end`` is None for the end
    of the file. ``waiters`` are the processes that wait for it.
    """

    address: int
    kind: str
    access: str
    pid: int
    path: str
    start: int
    end: Optional[int]
    waiters: list[int]


class FileLocks:
    """The locks on files in one kernel."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._paths = Paths(reader)
        self._core = reader.has("struct file_lock", "c")
        self._structure = "struct file_lock_core" if self._core else "struct file_lock"
        self._prefix = "flc" if self._core else "fl"

    def all(self) -> list[FileLock]:
        """Return the locks that are held, by path and start."""
        found: list[FileLock] = []
        if self._reader.symbol("file_lock_list") is None:
            return found  # a kernel without CONFIG_FILE_LOCKING
        for cpu in self._reader.cpus():
            with self._reader.reading("lists of file locks"):
                first = self._reader.percpu_variable("file_lock_list", cpu).hlist.first.value_()
                for lock in self._locks(int(first)):
                    with self._reader.reading("file locks"):
                        found.append(self._lock(lock))
                    if len(found) >= _MOST:
                        self._reader.note(f"only {_MOST:,} locks on files are shown")
                        return found
        return sorted(found, key=lambda each: (each.path, each.start, each.address))

    def _locks(self, first: int) -> Iterator[Object]:
        nodes = self._reader.hashed(first, "file locks")
        yield from self._reader.objects(self._structure, f"{self._prefix}_link", nodes)

    def _member(self, lock: Object, name: str) -> Object:
        return lock.member_(f"{self._prefix}_{name}")

    def _lock(self, lock: Object) -> FileLock:
        flags = int(self._member(lock, "flags"))
        kind = next((name for bit, name in _KINDS if flags & bit), "?")
        file = self._member(lock, "file")
        address = int(lock.value_())
        # The common part is the first member of struct file_lock. A lease has no range.
        whole = self._reader.pointer("struct file_lock", address)
        ranged = kind in ("POSIX", "OFDLCK")
        start, end = (int(whole.fl_start), int(whole.fl_end)) if ranged else (0, _END_OF_FILE)
        return FileLock(
            address,
            kind,
            _ACCESS.get(int(self._member(lock, "type")), "?"),
            int(self._member(lock, "pid")),
            self._paths.path(file.f_path) if file.value_() else "",
            start,
            None if end == _END_OF_FILE else end,
            self._waiters(address),
        )

    def _waiters(self, address: int) -> list[int]:
        """Return who waits for a lock, and for those who wait for it."""
        head = self._reader.offset(self._structure, f"{self._prefix}_blocked_requests")
        member = f"{self._prefix}_blocked_member"
        found: list[int] = []
        seen = {address}
        waiting = [address]
        while waiting and len(seen) < _MOST:
            list_head = waiting.pop() + head
            for each in self._reader.members(list_head, self._structure, member, "requests for a file lock"):
                at = int(each.value_())
                if at not in seen:
                    seen.add(at)
                    waiting.append(at)
                    found.append(int(self._member(each, "pid")))
        return sorted(found)
