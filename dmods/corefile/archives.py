"""Files and folders that hold a dump in another form: archives, and the images of CRIU. They say what helps."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Optional

from dmods.base.raw_names import shell_line

_BLOCK = 512
_TAR = b"ustar"  # at 257 (POSIX.1-2017, pax: ustar Interchange Format; GNU tar writes "ustar  ")
_ZIP = b"PK\x03\x04"
_IMAGES = struct.pack("<I", 0x54564319)  # IMG_COMMON_MAGIC (CRIU 3.17, criu/include/magic.h)
_INVENTORY = "inventory.img"  # each folder of images has it
_CORES = (b"\x7fELF", b"MDMP", b"KDUMP   ", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"\x04\x22\x4d\x18", b"\x1f\x8b")
_MOST_MEMBERS = 4096

Problem = tuple[str, str]  # what is wrong, and what helps


def is_images(folder: str) -> bool:
    """Return whether it is a folder with the images that `criu dump` writes."""
    try:
        with open(os.path.join(folder, _INVENTORY), "rb") as file:
            return file.read(4) == _IMAGES
    except OSError:
        return False


def of_folder(folder: str) -> Optional[Problem]:
    """Return that the folder has the images of CRIU, or None for any other."""
    if not is_images(folder):
        return None
    return f"{folder} is a folder with images of CRIU", _coredump(folder)


def of_file(path: str, head: bytes, packed: str = "") -> Optional[Problem]:
    """Return that a file is an archive or an image of CRIU, or None for any other.

    ``head`` are its first bytes: of what is in it, where it is compressed (``packed`` names the compression).
    """
    if head.startswith(_IMAGES):
        return f"{path} is an image of CRIU, one of several", _coredump(os.path.dirname(path) or ".")
    how = f", compressed ({packed})" if packed else ""
    name = shell_line([path])
    if head[257:262] == _TAR:
        inside = next((member for member, start in _members(head) if start.startswith(_CORES)), None)
        member = f" {shell_line([inside])}" if inside is not None else ""
        then = f"{inside}, which it writes" if inside is not None else "the core among the files that it writes"
        return f"{path} is a tar archive{how}", f"tar -xf {name}{member}; then give {then}"
    if head.startswith(_ZIP):
        return f"{path} is a zip archive{how}", f"unzip {name}; then give the core among the files that it writes"
    return None


def _coredump(folder: str) -> str:
    # CRIU 3.17, coredump/coredump.py: "-i directory where to get images from", "-o directory to write coredumps to"
    return (
        f"coredump/coredump -i {shell_line([folder])} -o . (a script in CRIU's sources) writes core.PID; "
        "before the process ends, `gcore PID` does"
    )


def _members(head: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (name, first bytes) of the files whose headers are in the first bytes of a tar archive."""
    at = 0
    for _count in range(_MOST_MEMBERS):
        header = head[at : at + _BLOCK]
        if len(header) < _BLOCK or header[257:262] != _TAR:
            return
        name = header[:100].split(b"\0")[0].decode("utf-8", "surrogateescape")
        size = _size(header[124:136])
        if header[156:157] in (b"0", b"\0"):  # a regular file
            yield name, head[at + _BLOCK : at + _BLOCK + 16]
        at += _BLOCK + (size + _BLOCK - 1) // _BLOCK * _BLOCK


def _size(field: bytes) -> int:
    """Return the size in a header: octal digits, or a number in binary if its first bit is set (GNU tar, base-256)."""
    if field[:1] >= b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else 0
