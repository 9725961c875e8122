"""Files of this machine that a dead process may have mapped. Nothing in them is used before it is checked."""

from __future__ import annotations

import os
import stat
from typing import Optional, Protocol

from dmods.base.dataclass import dataclass
from dmods.errors import CorruptError, TruncatedError
from dmods.modules.elf import MAGIC, Elf, build_id, parse
from dmods.modules.rooted import below

# A core may name a million files. Each takes some kilobytes, and more than these cannot be open at once.
MOST_FILES = 1 << 14

DEBUG_ROOT = "/usr/lib/debug"  # where every distribution installs it
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


class Image(Protocol):
    """Files that are still packed: the image of a container."""

    def unpacked(self, path: str) -> Optional[str]:
        """Return where the file of that path was unpacked, or None where the image has no such file."""


class LocalFiles:
    """Finds files by the path that the process knew. With ``sysroot``, files are only searched for below it.

    A path that begins with the sysroot's own is the same file: gdb's gcore writes the outside path of a process that
    ran in the sysroot, and so does /proc/PID/maps. Links of the files below the sysroot stay in it. Only in a folder of
    the user's own may a link lead out, where nothing is at that place in the folder; nobody else's root
    (/proc/PID/root) may lead to files of this machine. ``image`` fills the sysroot with what is asked for.
    """

    def __init__(self, sysroot: Optional[str], image: Optional[Image] = None) -> None:
        self.sysroot = sysroot
        self._image = image
        self._outside = os.path.join(os.path.realpath(sysroot), "") if sysroot is not None else ""
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
            self._seen[path] = self._open(here)
        return self._seen[path]

    def inside(self, path: str) -> Optional[LocalFile]:
        """Return the file of that path below the sysroot, or None where no file or no sysroot is there."""
        return self._open_inside(path) if self.sysroot is not None else None

    def unpack_debug_files(self, build_id: str, path: str) -> None:
        """Have the image unpack what it has of the debug information of a file."""
        if self._image is None:
            return
        names = (os.path.basename(path), f"{os.path.basename(path)}.debug")
        for name in (below_build_id("", f"{build_id}.debug"), *(os.path.dirname(path) + "/" + name for name in names)):
            self._image.unpacked(DEBUG_ROOT + name)

    def _open(self, path: str) -> Optional[LocalFile]:
        if self.sysroot is None:
            return open_local(path) if os.path.isabs(path) else None
        inside = path[len(self._outside) - 1 :] if path.startswith(self._outside) else path
        found = self._open_inside(inside)
        if found is None and self._image is None and not self.sysroot.startswith("/proc/"):
            found = open_local(os.path.join(self.sysroot, inside.lstrip("/")))
        return found

    def _open_inside(self, path: str) -> Optional[LocalFile]:
        assert self.sysroot is not None
        place = self._image.unpacked(path) if self._image is not None else below(self.sysroot, path)
        return open_local(place) if place is not None else None


def below_build_id(root: str, build_id: str) -> str:
    """Return the path of a file with this build-id in a folder of debug information. ``build_id`` may have a suffix."""
    return f"{root}/.build-id/{build_id[:2]}/{build_id[2:]}"


def debug_roots(sysroot: Optional[str]) -> list[str]:
    """Return the folders with separate debug information: those below `sysroot` before this machine's own.

    A file from either is used only where its build-id or its checksum proves that it is the right one.
    """
    return [*([os.path.join(sysroot, DEBUG_ROOT[1:])] if sysroot is not None else []), DEBUG_ROOT]


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
