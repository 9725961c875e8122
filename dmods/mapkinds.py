"""What each mapping of a process is for, as people ask of /proc/PID/maps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Optional

from dmods.target import AddressRange, Target

# In the order in which they are listed.
KINDS = (
    "heap",
    "arena",
    "stack",
    "thread stack",
    "file text",
    "file data",
    "anon",
    "shared",
    "vdso",
    "reserved",
)

# Memory that processes share, as the kernel names it in maps: POSIX and System V shared memory, memfd_create(), and
# anonymous MAP_SHARED (mm/shmem.c: "/dev/zero (deleted)").
_SHARED = ("/dev/shm/", "/SYSV", "/memfd:", "/dev/zero")

_VSYSCALL = 0xFFFFFFFFFF600000  # arch/x86/include/uapi/asm/vsyscall.h: VSYSCALL_ADDR

Claim = tuple[int, int, str]  # start, end, kind


def kinds(target: Target, claims: Iterable[Claim] = ()) -> list[tuple[AddressRange, str]]:
    """Every mapping with its kind, by address. A mapping of which only a part is claimed is split.

    ``claims`` is what an allocator knows of its memory (kinds "heap" and "arena"); the rest follows from the dump
    alone: the stacks from the threads' stack pointers, the vdso from the modules, the files from their paths.
    "reserved" is address space that cannot be accessed (the unused end of an arena, a guard page): no memory is
    behind it.
    """
    stacks = _stacks(target)
    vdso = next((module for module in target.modules() if module.path == "[vdso]"), None)
    found: list[tuple[AddressRange, str]] = []
    owned = sorted(claims)
    for mapping in target.mappings():
        kind = _kind(mapping, stacks.get(mapping.start))
        if _is_vdso(mapping, vdso.start if vdso is not None else None):
            kind = "vdso"
        found.extend(_split(mapping, kind, owned))
    return found


def _stacks(target: Target) -> dict[int, str]:
    """Start of a mapping -> "stack" or "thread stack", for those that a stack pointer points into."""
    mappings = target.mappings()
    starts = [mapping.start for mapping in mappings]
    found: dict[int, str] = {}
    for thread in target.threads():
        pointer = thread.registers.get(target.arch.sp, 0)
        index = bisect_right(starts, pointer) - 1
        if index >= 0 and pointer in mappings[index]:
            kind = "stack" if thread.tid == target.pid else "thread stack"
            found[starts[index]] = "stack" if found.get(starts[index]) == "stack" else kind
    return found


def _kind(mapping: AddressRange, stack: object) -> str:
    if mapping.path is not None:
        if mapping.path.startswith(_SHARED):
            return "shared"
        return "file text" if "x" in mapping.flags else "file data"
    if mapping.flags == "---":
        return "reserved"
    return str(stack) if stack else "anon"


def _is_vdso(mapping: AddressRange, vdso: Optional[int]) -> bool:
    """The vdso, the kernel's data pages right below it (arch/x86/entry/vdso/vma.c: vvar), and the old vsyscall page."""
    if mapping.start in (vdso, _VSYSCALL):
        return True
    below = vdso is not None and 0 < vdso - mapping.start <= 1 << 16
    return below and mapping.path is None and mapping.flags == "r--"


def _split(mapping: AddressRange, kind: str, claims: Sequence[Claim]) -> Iterator[tuple[AddressRange, str]]:
    at = mapping.start
    for start, end, claimed in claims:
        if end <= at or mapping.flags == "---":
            continue
        if start >= mapping.end:
            break
        if start > at:
            yield _part(mapping, at, start), kind
        yield _part(mapping, max(start, at), min(end, mapping.end)), claimed
        at = min(end, mapping.end)
    if at < mapping.end:
        yield _part(mapping, at, mapping.end), kind


def _part(mapping: AddressRange, start: int, end: int) -> AddressRange:
    skip = start - mapping.start
    dumped = max(0, min(mapping.dumped - skip, end - start))
    offset = mapping.offset + skip if mapping.path is not None else 0
    return replace(mapping, start=start, end=end, offset=offset, dumped=dumped)
