"""Which files of a folder are dumps, and what tells one dump from every other."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.corefile import packed
from dmods.corefile.context import context_of
from dmods.corefile.crash_handlers import abrt, apport
from dmods.corefile.kernel_dumps import lacks_vmcoreinfo
from dmods.corefile.unpacked import form_of
from dmods.errors import DmodsError, UserError
from dmods.modules import elf

SIDE = ".dmods.json"  # the file beside a dump that says where it comes from
_MOST_NOTES = 16 << 20
_HEAD = 1 << 16
_NAME = regex("core|dump")
_HEAD_BYTES = 18  # of a dump, that say what it is: up to e_type


class Origin(NamedTuple):
    """Where a dump comes from. ``seen`` is seconds since 1970.

    ``version`` is what the side file says, or the package, or "".
    """

    host: str
    seen: float
    version: str


def dumps(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (folder that was named, path) of every dump in the folders, and of every file that was named itself.

    A report of apport is one if it has a core. Of a folder of abrt, it is the core.
    An empty file with the name of a dump is one that could not be written: the disk was full, or its writer died.
    Links are not followed. Raises UserError where a path does not exist.
    """
    for path in paths:
        if not os.path.exists(path):
            raise UserError(f"{path} does not exist", "name folders with dumps, or dumps")
        if not os.path.isdir(path):
            yield os.path.dirname(path), path
            continue
        for folder, folders, files in os.walk(path):
            folders.sort()
            core = abrt.core_in(folder)
            if core is not None:
                folders.clear()
                yield path, core
                continue
            for name in sorted(files):
                each = os.path.join(folder, name)
                if not os.path.islink(each) and (is_dump(each) or _is_empty_dump(each)):
                    yield path, each


def is_dump(path: str) -> bool:
    """Return whether the file begins like a core or a kernel's dump. It may be compressed, or in a report of apport."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would wait for a writer
            return False
        form = form_of(path)
        if form == apport.KEEPER:
            return apport.has_core(path)
        if form is not None:
            return packed.is_dump(packed.head_of(path, form, _HEAD_BYTES))
        with open(path, "rb") as file:
            return packed.is_dump(file.read(_HEAD_BYTES))
    except OSError:
        return False


def _is_empty_dump(path: str) -> bool:
    """Return whether the file is empty and has a name that kernels and their tools give to dumps."""
    name = os.path.basename(path)
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (
        stat.S_ISREG(found.st_mode) and not found.st_size and _NAME.search(name) is not None and not name.endswith(SIDE)
    )


def is_kernel_dump(path: str) -> bool:
    """Return whether the dump is one of a kernel: compressed by makedumpfile, or an ELF file of a machine."""
    try:
        with open(path, "rb") as file:
            if file.read(8) in packed.KDUMP:
                return True
            return any(b"VMCOREINFO\0" in notes for notes in _notes(file, path)) or lacks_vmcoreinfo(path)
    except OSError:
        return False


def content_id(path: str) -> str:
    """Return a name of the dump's content: of its size and its notes, which hold the pid, the registers and the files.

    It costs the same for a large dump as for a small one. A dump without notes goes by its first bytes,
    an empty one by its path. Raises OSError.
    """
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        known = hashlib.sha256(f"{size}\0".encode() + file.read(_HEAD))
        if not size:
            known.update(os.fsencode(os.path.abspath(path)))
        for notes in _notes(file, path):
            known.update(notes)
    return known.hexdigest()[:32]


def _notes(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yield the bytes of the first segments of notes, of each at most 16 MB; nothing where the file is no ELF file."""
    size = file.seek(0, os.SEEK_END)

    def read(offset: int, count: int) -> bytes:
        file.seek(offset)
        return file.read(count)

    try:
        notes = [each for each in elf.parse(read, path).segments if each.type == elf.PT_NOTE]
    except (DmodsError, OverflowError):
        return
    for each in notes[:4]:
        if each.offset < size:
            yield read(each.offset, min(each.filesz, _MOST_NOTES))


def origin(folder: str, path: str) -> Origin:
    """Return where the dump comes from: its side file says it, or systemd, apport or abrt where they keep it.

    Else the host is the folder below the named one, and the time is that of the file's last change.
    """
    told, kept = _side(path), context_of(path)
    known = kept.known if kept is not None else {}
    place = os.path.dirname(path) or "."
    if abrt.core_in(place) == path:
        place = os.path.dirname(place)
    below = os.path.relpath(place, folder or ".").split(os.sep)[0]
    host = told.get("host") or known.get("hostname") or (below if below not in (".", "..") else "")
    seen = told.get("time")
    if not isinstance(seen, (int, float)):
        seen = kept.time if kept is not None else None
    if seen is None:
        seen = os.stat(path).st_mtime
    return Origin(str(host)[:255], float(seen), str(told.get("version") or known.get("package") or "")[:255])


def _side(path: str) -> dict[str, object]:
    try:
        with open(path + SIDE, "rb") as file:
            told: Optional[object] = json.loads(file.read(_HEAD))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
