"""A picture of a live process, as a core that is not on the disk, and a Target on it."""

from __future__ import annotations

import os
import weakref
from typing import Optional

from dmods.base.sizes import human_size
from dmods.corefile import elfcore
from dmods.corefile.live.context import live_context
from dmods.corefile.live.process import Status, check, folder_of, read_bytes, read_text, refusal, root_of
from dmods.corefile.live.room import free_memory
from dmods.corefile.notes import NT_PRSTATUS
from dmods.corefile.target import CoreFile
from dmods.corefile.unpacked import unnamed_file
from dmods.errors import UserError
from dmods.process.arch import AARCH64, I386, X86_64
from dmods.target import Arch

#: Bits of coredump_filter (core(5)): what a picture has at least. They are the kernel's own default.
LEAST_FILTER = 0x33
_LEAST = 1 << 16  # the first offset of memory in the file, and so the least address (vm.mmap_min_addr)
_ARCHES = {216: X86_64, 68: I386, 272: AARCH64}  # by the size of the general registers


def open_process(pid: int, executable: Optional[str] = None, sysroot: Optional[str] = None) -> CoreFile:
    """Stop a process for a moment and return it as it was then. Raises UserError where that is not possible."""
    found = check(pid)
    room = free_memory()
    wide = _is_64_bit(pid)
    in_memory = wide and (room is None or found.memory + found.memory // 8 < room)
    descriptor = (
        os.memfd_create(f"dmods-{pid}") if in_memory else unnamed_file(found.memory, f"process {pid} (memory is short)")
    )
    root = _open_root(pid) if sysroot is None else None
    context = live_context(pid)  # the process may end as soon as it runs on
    try:
        notes = _take(pid, found, descriptor, wide, in_memory)
        below = sysroot if root is None else f"/proc/self/fd/{root}"
        target = CoreFile(f"/proc/self/fd/{descriptor}", executable, below)
    except BaseException:
        for each in (descriptor, *([root] if root is not None else [])):
            os.close(each)
        raise
    weakref.finalize(target, os.close, descriptor)
    if root is not None:
        weakref.finalize(target, os.close, root)
    target.path, target.pid, target.context, target.knows_touched = None, pid, context, True
    target.notes[:0] = notes
    return target


def _open_root(pid: int) -> Optional[int]:
    """Return a descriptor of the process's root where that is not ours: its files outlive the process then."""
    if root_of(pid) is None:
        return None
    try:
        # The link of /proc leads there, whatever its text says.
        return os.open(f"{folder_of(pid)}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _take(pid: int, found: Status, descriptor: int, wide: bool, in_memory: bool) -> list[str]:
    """Take the picture into an empty file, and return notes about it."""
    from dmods._engine import take_picture

    page, folder = os.sysconf("SC_PAGE_SIZE"), folder_of(pid)
    chosen = int(read_text(f"{folder}/coredump_filter").strip() or "0", 16) | LEAST_FILTER
    path = f"/proc/self/fd/{descriptor}"
    # The process may end as soon as it runs on.
    words, auxv = (read_bytes(f"{folder}/{name}") for name in ("cmdline", "auxv"))
    try:
        pause, read, unread, left, threads, maps = take_picture(
            int(os.path.basename(folder)), path, chosen, page, in_memory, _LEAST
        )
    except PermissionError:
        raise refusal(pid, check(pid)) from None  # a tracer may have appeared meanwhile
    except ProcessLookupError:
        raise UserError(f"process {pid} ({found.name}) has ended", "`ps -e` lists the processes") from None
    except TimeoutError as error:
        raise _stuck(pid, found, int(error.args[0])) from None
    except OSError as error:
        raise UserError(f"process {pid} ({found.name}) cannot be read: {error}", "`gcore` may tell more") from None
    rows = [elfcore.LiveThread(*row) for row in threads]
    arch = _arch(found, pid, rows, wide)
    about = elfcore.About(pid, os.fsencode(found.name), words, auxv, page)
    elfcore.write(descriptor, arch, about, rows, [elfcore.LiveMapping(*row) for row in maps])
    where = "" if in_memory else ", into a file that has no name"
    stopped = "" if found.state in "Tt" else f" stood still for {pause * 1000:.1f} ms, and runs on"
    notes = [
        f"process {pid} ({found.name}){stopped or ' is stopped, and stays so'}: {human_size(read)} were read{where}"
    ]
    if unread:
        notes.append(f"{unread} bytes of the process's memory could not be read")
    if left:
        notes.append(
            f"{left} bytes of mapped files are not in the picture: the process did not touch them, and this user "
            "may not open these files. Root may"
        )
    return notes


def _arch(found: Status, pid: int, threads: list[elfcore.LiveThread], wide: bool) -> Arch:
    sizes = {len(dict(thread.registers).get(NT_PRSTATUS, b"")) for thread in threads}
    arch = _ARCHES.get(next(iter(sizes))) if len(sizes) == 1 else None
    if arch is None or (arch.word == 8) != wide:
        raise UserError(
            f"process {pid} ({found.name}) runs on a machine that dmods does not know", "it reads x86-64, i386, AArch64"
        )
    return arch


def _is_64_bit(pid: int) -> bool:
    """Return whether the program is one of 64 bits. Where it cannot be read, it is taken for one."""
    try:
        with open(f"{folder_of(pid)}/exe", "rb") as file:
            return file.read(5) != b"\x7fELF\x01"
    except OSError:
        return True


def _stuck(pid: int, found: Status, tid: int) -> UserError:
    state = read_text(f"/proc/{pid}/task/{tid}/stat").rpartition(")")[2].split()[:1]
    where = read_text(f"/proc/{pid}/task/{tid}/wchan").strip("0\n")
    waits = f"it waits in the kernel ({where or 'state ' + (state[0] if state else '?')})"
    return UserError(
        f"process {pid} ({found.name}) cannot be stopped: thread {tid} does not answer, {waits}",
        "try again: a disk or a network file system may be slow; it runs on as before",
    )
