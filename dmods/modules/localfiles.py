"""Files of this machine that a dead process may have mapped. Nothing in them is used before it is checked."""

from __future__ import annotations

import os
import stat
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.errors import CorruptError, TruncatedError
from dmods.modules.elf import MAGIC, Elf, build_id, parse

# A core may name a million files. Each takes some kilobytes, and more than these cannot be open at once.
MOST_FILES = 1 << 14

_DEBUG_ROOT = "/usr/lib/debug"  # where every distribution installs it
_DELETED = " (deleted)"  # what the kernel's d_path() appends to the path of an unlinked file


@dataclass(frozen=True)
class LocalFile:
    """A regular file of this machine. ``elf`` is None where it is not ELF. ``head`` is its first page."""

    path: str
    size: int
    mtime: float
    head: bytes
    elf: Optional[Elf]
    build_id: Optional[str]


class LocalFiles:
    """Finds files by the path that the process knew. With ``sysroot``, files are only searched for below it.

    A path that begins with the sysroot is used as it is: gdb's gcore writes the outside path of a process that ran in
    the sysroot.
    """

    def __init__(self, sysroot: Optional[str]) -> None:
        self.sysroot = sysroot
        self._seen: dict[str, Optional[LocalFile]] = {}
        self.not_looked_for = 0  # how many calls came after MOST_FILES files

    def find(self, path: str) -> Optional[LocalFile]:
        """Return the file, or None where it is not on this machine.

        The kernel's mark of a deleted file is removed from the path. The file that is there now may be another one: the
        caller must check.
        """
        if path not in self._seen:
            if len(self._seen) >= MOST_FILES:
                self.not_looked_for += 1
                return None
            here = path[: -len(_DELETED)] if was_deleted(path) else path
            if self.sysroot is not None and not here.startswith(os.path.join(os.path.realpath(self.sysroot), "")):
                here = os.path.join(self.sysroot, here.lstrip("/"))
            self._seen[path] = open_local(here) if os.path.isabs(here) or self.sysroot else None
        return self._seen[path]


def debug_roots(sysroot: Optional[str]) -> list[str]:
    """Return the folders with separate debug information: those below `sysroot` before this machine's own.

    A file from either is used only where its build-id or its checksum proves that it is the right one.
    """
    return [*([os.path.join(sysroot, _DEBUG_ROOT[1:])] if sysroot is not None else []), _DEBUG_ROOT]


def debuginfod_file(build_id: str) -> Optional[str]:
    """Return the debug information that a debuginfod client, such as gdb, has downloaded before; None without it.

    The places are those of debuginfod_find_debuginfo(3), "CACHE".
    """
    home = os.path.expanduser("~")
    folders = [
        os.environ.get("DEBUGINFOD_CACHE_PATH"),
        os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "debuginfod_client"),
        os.path.join(home, ".debuginfod_client_cache"),
    ]
    paths = [os.path.join(folder, build_id, "debuginfo") for folder in folders if folder]
    # An empty file says that the server had none (debuginfod_find_debuginfo(3)).
    return next((path for path in paths if os.path.isfile(path) and os.path.getsize(path)), None)


def was_deleted(path: str) -> bool:
    """Return whether the kernel marked the path as that of an unlinked file."""
    return path.endswith(_DELETED)


def open_local(path: str) -> Optional[LocalFile]:
    """Return the file, or None where it is not a regular file that can be read. Devices and pipes are not opened."""
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


def why_no_elf(path: str) -> Optional[str]:
    """Return why the path is not that of an ELF file which can be read, or None if it is."""
    try:
        if os.path.isdir(path):
            return "it is a folder"
        with open(path, "rb") as file:
            return None if file.read(4) == MAGIC else "it is not an ELF file"
    except (OSError, ValueError) as error:
        return f"it cannot be read ({getattr(error, 'strerror', None) or error})"
