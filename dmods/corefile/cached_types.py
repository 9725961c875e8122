"""The types and variables of debug information, kept in the user's cache folder (engine/core/src/dwarf/unpacked.rs).

The next command finds there what the first one has read. The folder is the user's own; where it is not, or cannot be
made, each command reads the debug information again.
"""

from __future__ import annotations

import os
import stat
from typing import Optional

from dmods.corefile import unpacked
from dmods.errors import UserError

KIND = "types"  # the folder beside the copies of dumps
#: Less debug information (bytes in its file) is read again as fast as what is kept of it.
AT_LEAST = 1 << 19
_SUFFIX = ".types"
_MOST_HEAD = 1 << 13  # bytes of the lines that say what a file was made of


def folder_of_tables() -> Optional[str]:
    """Return the path of the folder, which is made if it does not exist. None: there can be none."""
    try:
        return unpacked.own_folder(KIND)
    except UserError:
        return None


def kept_tables() -> list[unpacked.Copy]:
    """Return what is kept, the one that was used last first. Raises UserError for a folder of others."""
    if not os.path.lexists(unpacked.folder_of_copies(KIND)):
        return []
    found = []
    for entry in os.scandir(unpacked.own_folder(KIND)):
        if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
            status = entry.stat(follow_symlinks=False)
            found.append(unpacked.Copy(entry.path, _source(entry.path), status.st_blocks * 512, status.st_mtime))
    return sorted(found, key=lambda each: -each.used)


def clear_tables() -> tuple[int, int]:
    """Remove what is kept. Return (of how many files with debug information, their bytes on the disk)."""
    found = kept_tables()
    for each in found:
        os.unlink(each.path)
    return len(found), sum(each.stored for each in found)


def _source(path: str) -> str:
    """Return the path of the debug information that a file was made of, as its second line has it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            head = file.read(_MOST_HEAD) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        head = b""
    lines = head.split(b"\n")
    return lines[1].decode("utf-8", "replace") if len(lines) > 2 else "?"
