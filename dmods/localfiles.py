"""The files behind a dead process's mappings, looked for on this machine and checked before a byte of them is
believed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Optional

from dmods.elf import MAGIC, Elf, build_id, parse
from dmods.errors import CorruptError, TruncatedError

# A core may name a million files. More than these could not be open at once, and each takes some kilobytes.
MOST_FILES = 1 << 14

_DELETED = " (deleted)"  # what the kernel's d_path() appends to the path of an unlinked file


@dataclass(frozen=True)
class LocalFile:
    """A regular file of this machine; ``elf`` is None where it is not ELF. ``head`` is its first page."""

    path: str
    size: int
    mtime: float
    head: bytes
    elf: Optional[Elf]
    build_id: Optional[str]


class LocalFiles:
    """Finds files by the path the process knew, under ``sysroot`` when given (and only there). A path that lies in it
    already is taken as it is: of a process that ran in the sysroot, gdb's gcore notes what it is called outside."""

    def __init__(self, sysroot: Optional[str]) -> None:
        self.sysroot = sysroot
        self._seen: dict[str, Optional[LocalFile]] = {}
        self.not_looked_for = 0  # questions that came when there had been too many

    def find(self, path: str) -> Optional[LocalFile]:
        """None: no such file here. A path that the kernel marked as deleted is looked for without the mark: what is
        there now may be another file, so the caller must ask for proof."""
        if path not in self._seen:
            if len(self._seen) >= MOST_FILES:
                self.not_looked_for += 1
                return None
            here = path[: -len(_DELETED)] if was_deleted(path) else path
            if self.sysroot is not None and not here.startswith(os.path.join(os.path.realpath(self.sysroot), "")):
                here = os.path.join(self.sysroot, here.lstrip("/"))
            self._seen[path] = open_local(here) if os.path.isabs(here) or self.sysroot else None
        return self._seen[path]


def was_deleted(path: str) -> bool:
    return path.endswith(_DELETED)


def open_local(path: str) -> Optional[LocalFile]:
    """None where there is no regular file that can be read (never opens a device or waits on a pipe)."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)

        def read(offset: int, size: int) -> bytes:
            if offset < 0 or offset >= status.st_size:
                return b""
            return os.pread(descriptor, min(size, status.st_size - offset), offset)

        head = read(0, 4096)
        elf = identity = None
        if head[:4] == MAGIC:
            try:
                elf = parse(read, path)
                identity = build_id(elf, read)
            except (CorruptError, TruncatedError):
                elf = None
        return LocalFile(path, status.st_size, status.st_mtime, head, elf, identity)
    except OSError:
        return None
    finally:
        os.close(descriptor)
