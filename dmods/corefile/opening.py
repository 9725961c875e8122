"""Open the file of a core, and say in words what another file is."""

from __future__ import annotations

import os

from dmods.corefile import archives
from dmods.corefile.packed import KDUMP
from dmods.errors import CorruptError, KernelDumpError, TruncatedError, UserError
from dmods.modules import elf
from dmods.modules.localfiles import LocalFile, open_local

_BEGIN = 4096  # bytes that are looked at; a file system that lost the data of a file gives zeros


def open_core(path: str) -> tuple[int, int, tuple[str, int, int]]:
    """Return the descriptor of a file, its size in bytes, and what identifies it: path, time of change in ns, size.

    Raises UserError for a file that cannot be opened and for what is no regular file.
    """
    import stat

    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            problem = archives.of_folder(path)
            if problem is not None:
                raise UserError(*problem)
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise UserError(f"{path} is {kind}", "give the path of a core file")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        how = "give the path of a core file"
        if isinstance(error, PermissionError):
            how = "as root, chown it to yourself (root owns the core of a set-uid program)"
        elif path.isdecimal() and os.path.exists(f"/proc/{path}"):
            how = f"process {path} is alive: `gcore {path}` makes a core of it; `dmods gdb -p {path}` attaches to it"
        raise UserError(f"cannot open {path}: {reason}", how) from None
    return descriptor, status.st_size, (os.path.realpath(path), status.st_mtime_ns, status.st_size)


def given_program(path: str) -> LocalFile:
    """Return the program that the user named. Raises UserError for a file that is no ELF file."""
    local = open_local(path)
    if local is None or local.elf is None:
        reason = "it cannot be read" if local is None else "it is not an ELF file"
        raise UserError(f"cannot use {path} as the program: {reason}", "give the program that dumped the core")
    return local


def core_header(read: elf.Read, path: str) -> elf.Elf:
    """Return the ELF header of a core. Raises KernelDumpError for the dump of a kernel, UserError for another file."""
    magic = read(0, 8)
    if not magic:
        raise UserError(
            f"{path} is empty", "check the free space on the disk and `ulimit -c`, then make the core again"
        )
    begin = read(0, _BEGIN)
    if not any(begin):
        raise UserError(
            f"{path} begins with {len(begin)} zero bytes: its ELF header is not there",
            "the disk was full, or the machine stopped: check the free space, then make or copy the core again",
        )
    if magic in KDUMP:
        raise KernelDumpError(path)
    try:
        header = elf.parse(read, path)
    except CorruptError as error:
        problem = archives.of_file(path, begin)
        if problem is not None:
            raise UserError(*problem) from None
        raise UserError(f"{error}: not a core file", "give a core file of Linux (`file` says what a file is)") from None
    except TruncatedError as error:
        raise UserError(str(error), "nothing in it can be read: copy or make the core again") from None
    if header.type != elf.ET_CORE:
        what = {elf.ET_EXEC: "a program", elf.ET_DYN: "a program or library", elf.ET_REL: "an object file"}
        raise UserError(
            f"{path} is {what.get(header.type, 'an ELF file')}, not a core",
            "give a core; the program goes after --exe",
        )
    return header
