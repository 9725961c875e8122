"""The files that an image consists of: in a folder or in a tar, and unpacked where they are compressed.

Every name, size and link in them is somebody else's: nothing is opened outside, and nothing is read beyond its end.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from functools import cached_property
from typing import Optional, Protocol

from dmods.base.progress import Progress
from dmods.base.sizes import human_size
from dmods.corefile import packed, unpacked
from dmods.errors import UserError
from dmods.modules.rooted import below, resolved

MOST_ENTRIES = 1 << 19  # of a tar: a distribution has 100,000 files
_MOST_READ = 16 << 20  # bytes that tarfile may read at once: headers, and the names of PAX
_STEP = 4 << 20


class Section(io.RawIOBase):
    """A part of an open file, as a file of its own. It does not close the file."""

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        super().__init__()
        self.descriptor, self.start, self.size = descriptor, start, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        size = self.size if size is None or size < 0 else size
        data = self.at(self._at, min(size, _MOST_READ))
        self._at += len(data)
        return data

    def at(self, offset: int, size: int) -> bytes:
        """Return the bytes at an offset; fewer at the end."""
        size = max(0, min(size, self.size - offset))
        return os.pread(self.descriptor, size, self.start + offset) if size else b""


class Store(Protocol):
    """Files by their names."""

    def open(self, name: str) -> Optional[Section]:
        """Return the regular file of that name, or None."""


class Folder:
    """A folder. Its links stay in it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, name: str) -> Optional[Section]:
        """Return the regular file of that name, or None."""
        place = below(self._path, name)
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC) if place else None
        except (OSError, ValueError):
            return None
        if descriptor is None:
            return None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return None
        return Section(descriptor, 0, status.st_size)


class Tar:
    """A tar. Where a name is there twice, the later one counts."""

    def __init__(self, file: Section) -> None:
        self._file = file

    @cached_property
    def _members(self) -> dict[str, tarfile.TarInfo]:
        return {name: member for member in members(self._file, []) if (name := clean(member.name)) is not None}

    def open(self, name: str) -> Optional[Section]:
        """Return the regular file of that name, or None."""

        def link(path: str) -> Optional[str]:
            found = self._members.get(path)
            return found.linkname if found is not None and found.issym() else None

        found = self._members.get(resolved(name, link) or "")
        if found is None or not found.isreg() or found.sparse:
            return None
        return Section(self._file.descriptor, self._file.start + found.offset_data, found.size)


def clean(name: str) -> Optional[str]:
    """Return a name in a tar as an absolute path, or None for one that leads out by `..`."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts or "\0" in name else "/" + "/".join(parts)


def members(file: Section, problems: list[str]) -> Iterator[tarfile.TarInfo]:
    """Yield the entries of a tar up to the first one that is damaged, which becomes a line in ``problems``."""
    try:
        with tarfile.TarFile(fileobj=file, mode="r", errorlevel=0, ignore_zeros=False) as tar:
            for _count in range(MOST_ENTRIES):
                member = tar.next()
                if member is None:
                    # tarfile takes a damaged header behind the first for the end of the tar. There, zeros stand.
                    if file.at(tar.offset, tarfile.BLOCKSIZE).strip(b"\0"):
                        problems.append(f"the tar is damaged at byte {tar.offset}: what is behind it is missing")
                    return
                setattr(tar, "members", [])  # noqa: B010 (it would keep all; the name is not in its stubs)
                if member.size < 0 or (member.isreg() and member.offset_data + member.size > file.size):
                    problems.append(f"{member.name[:200]} says that it has {member.size} bytes, and the tar is shorter")
                    return
                yield member
            problems.append(f"it has more than {MOST_ENTRIES} entries: the others are not used")
    except (tarfile.TarError, OSError, ValueError, OverflowError, EOFError, MemoryError, RecursionError) as error:
        problems.append(f"it is cut or damaged ({error})")


def plain(file: Section, what: str) -> Section:
    """Return the file, or what is in it where it is compressed: in a file without a name, which ends with the process.

    Raises UserError where it is too large, damaged at once, or where there is no room.
    """
    form = packed.form_of_bytes(file.at(0, 16))
    if form is None:
        return file
    most, room = unpacked.most_size(file.size), unpacked.room()
    source = unpacked.unnamed_file(file.size, what)
    try:
        for offset in range(0, file.size, _STEP):
            os.write(source, file.at(offset, _STEP))
        to = unpacked.unnamed_file(0, what)
        with Progress(f"unpacking {what}") as bar:
            path, into = f"/proc/self/fd/{source}", f"/proc/self/fd/{to}"
            limits = packed.Limits(most, room)
            made = packed.unpack(path, form, into, limits, lambda done: bar.update(done, file.size))
    except OSError as error:
        raise UserError(f"{what} cannot be unpacked: {error.strerror}", unpacked.elsewhere()) from None
    finally:
        os.close(source)
    if made.full and made.stored >= room:
        raise UserError(f"there is no room to unpack {what}: {human_size(room)} are free for it", unpacked.elsewhere())
    if made.full:
        raise UserError(
            f"{what} is too large to be unpacked: it has more than {human_size(most)}",
            "if that can be right, give a higher limit: --max-size 200G",
        )
    if made.damage and not made.size:
        raise UserError(f"{what} cannot be unpacked ({made.damage})", "copy or save the image again, whole")
    return Section(to, 0, made.size)
