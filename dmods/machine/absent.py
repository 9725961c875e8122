"""Say what a core lacks, because of what, and how to have it next time: core(5), madvise(2).

The rules are those of the kernel's vma_dump_size() (fs/coredump.c). A core does not say which bits coredump_filter had,
so what lacks is told by its kind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.base.sizes import counted, human_size
from dmods.corefile.context import crash_context
from dmods.corefile.unpacked import plain_path
from dmods.errors import UserError
from dmods.heap.mapping_kinds import classify_mappings
from dmods.process.zeroed import REMEDY, zeroed
from dmods.target import AddressRange, Target

_ALL = "0x7f"  # every bit that is about the memory of a process: 0 to 6
FILTER = f"next time: echo {_ALL} > /proc/PID/coredump_filter before it dies (child processes inherit it); or gcore PID"
EXCLUDED = "next time: gdb -p PID -ex 'set dump-excluded-mappings on' -ex gcore; `dmods doctor PID` tells which it was"
WHOLE = "next time: ulimit -c unlimited, room on the disk, and with systemd ExternalSizeMax= in coredump.conf"
# fs/coredump.c, fill_files_note(): the list is left out if it is larger than this sysctl (since Linux 6.10; 4 MiB).
UNNAMED = (
    "mappings of files, or untouched memory: the core has no list of mapped files (NT_FILE)",
    "next time: sysctl kernel.core_file_note_size_limit=16777216 before it dies; or gcore PID",
)
# The kernel reads memory for a core as the process does. ptrace reads it as another process, which protection keys do
# not hold up (arch/x86/include/asm/mmu_context.h: arch_vma_access_permitted).
UNREADABLE = "next time: gcore PID, which reads it by ptrace"
_STEP, _MOST_READ = 1 << 20, 64 << 20
_DELETED = ("/memfd:", "/SYSV", "/dev/zero")
_HUGE = ("/anon_hugepage", "/dev/hugepages/")
#: ProcessSizeMax and ExternalSizeMax by default: since systemd 251 on 64 and 32 bits, and before it.
SYSTEMD_SIZES = (32 << 30, 1 << 30, 2 << 30)
_NEAR = 64 << 10  # bytes: how far below a limit a core ends that was cut by it


class Absence(NamedTuple):
    """Memory that a core lacks: bytes, what it is and why it is not there, and how to have it next time."""

    size: int
    why: str
    help: str

    def __str__(self) -> str:
        return f"{self.size} bytes {self.why}"


def absences(target: Target) -> list[Absence]:
    """Return what the core lacks of the memory that the process could write, and memory that it could only execute.

    This includes what has zeros there.
    """
    if target.path is None:
        return []
    target.image()  # the notes about damage are there then
    cut = Ranges(target.missing)
    has_anonymous = any(
        mapping.path is None and "w" in mapping.flags and mapping.dumped for mapping in target.mappings()
    )
    found: dict[tuple[str, str], dict[str, int]] = {}
    for mapping, kind in classify_mappings(target):
        if "w" in mapping.flags and mapping.dumped < mapping.size:
            is_cut = bool(cut.within(mapping.start + mapping.dumped, mapping.end))
            if is_cut:
                reason = (_cut_by(target), WHOLE)
            else:
                reason = UNNAMED if kind == "unknown" else _reason(mapping, has_anonymous)
            sizes = found.setdefault(reason, {})
            sizes[kind] = sizes.get(kind, 0) + mapping.size - mapping.dumped
    made = []
    for (why, help_), sizes in found.items():
        kinds = ", ".join(f"{kind} {human_size(size)}" for kind, size in sizes.items())
        made.append(Absence(sum(sizes.values()), f"({kinds}): {why}", help_))
    unread = "gdb could not read it, and wrote zeros"
    made += [Absence(each.size, f"({each.what}): {unread}", REMEDY) for each in zeroed(target)]
    return [*made, *_execute_only(target)]


def _reason(mapping: AddressRange, has_anonymous: bool) -> tuple[str, str]:
    """Return why a mapping is not in the core, and what helps."""
    path = mapping.path
    if path is None and has_anonymous:
        return "the program excluded it (MADV_DONTDUMP), or never touched it: a core does not say which", EXCLUDED
    if path is None:
        return "private anonymous memory, and coredump_filter had no bit 0 (0x1)", FILTER
    if path.startswith(_HUGE):
        return "huge pages, and coredump_filter had no bit 5 (0x20: private) or 6 (0x40: shared)", FILTER
    if path.startswith(_DELETED) or (path.endswith(" (deleted)") and mapping.anonymous):
        return "shared anonymous memory, and coredump_filter had no bit 1 (0x2)", FILTER
    if path.startswith("/dev/") and not mapping.anonymous:
        return "memory of a device, which the kernel writes into no core", ""
    return (
        "mappings of files, and coredump_filter had no bit 3 (0x8: shared), 2 (0x4: private), or 0 (0x1: private and "
        "written)",
        FILTER,
    )


def _cut_by(target: Target) -> str:
    """Return which limit has cut the core, as far as its size and its keeper tell."""
    kept, size = crash_context(target), _plain_size(target.path)
    limit = None
    if kept is not None:
        limit = kept.number("rlimit") if "rlimit" in kept.known else kept.limit("Max core file size")
    if limit is not None and size is not None and limit - _NEAR <= size <= limit + _NEAR:
        return f"the core is cut, at the size limit that the process had: {limit} bytes (RLIMIT_CORE)"
    if kept is not None and kept.known.get("truncated") == "1":
        return "the core is cut: systemd-coredump says so; its maximum is ProcessSizeMax= and ExternalSizeMax="
    if size in SYSTEMD_SIZES:
        return f"the core is cut, at {human_size(size)}: the maximum of systemd-coredump by default"
    return "the core is cut: by a size limit, a full disk, or a copy that ended early"


def _plain_size(path: Optional[str]) -> Optional[int]:
    try:
        return os.stat(plain_path(path)[0]).st_size if path is not None else None
    except (OSError, UserError):
        return None


def _execute_only(target: Target) -> Iterator[Absence]:
    """Yield memory that could only be executed and has nothing but zeros: no program executes zeros.

    Where the processor has protection keys, the kernel cannot read it for the core.
    """
    found = [
        mapping
        for mapping, kind in classify_mappings(target)
        if mapping.flags == "--x" and kind == "anon" and mapping.dumped and _is_zero(target, mapping)
    ]
    if found:
        size, count = sum(mapping.dumped for mapping in found), counted(len(found), "mapping")
        yield Absence(
            size, f"of execute-only memory ({count}): the kernel could not read it, and wrote zeros", UNREADABLE
        )


def _is_zero(target: Target, mapping: AddressRange) -> bool:
    end = min(mapping.start + mapping.dumped, mapping.start + _MOST_READ)
    return not any(
        target.image().read(at, min(_STEP, end - at)).strip(b"\0") for at in range(mapping.start, end, _STEP)
    )
