"""What each mapping of a process is for, as people ask of /proc/PID/maps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Optional

from dmods.elf import PAGE
from dmods.ranges import Ranges
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


def kinds(target: Target) -> list[tuple[AddressRange, str]]:
    """Every mapping with its kind, by address; one of which only a part is the allocator's is split.

    The allocator says what is heap and arena; the stacks follow from the threads' stack pointers, the vdso from the
    modules, the rest from the paths. "reserved" is address space that cannot be accessed (a guard page, the unused
    end of an arena): no memory is behind it.
    """
    stacks = _stacks(target)
    vdso = next((module.start for module in target.modules() if module.path == "[vdso]"), None)
    claims = allocator_claims(target)
    arena_ends = {end for _start, end, kind in claims if kind == "arena"}
    found: list[tuple[AddressRange, str]] = []
    for mapping in target.mappings():
        if _is_vdso(mapping, vdso):
            kind = "vdso"
        elif _is_barred(mapping, arena_ends, stacks):
            kind = "reserved"
        else:
            kind = _kind(mapping, stacks.get(mapping.start))
        found.extend(_split(mapping, kind, claims if mapping.path is None and "w" in mapping.flags else ()))
    return found


def allocator_claims(target: Target) -> list[Claim]:
    """What malloc knows to be its own: thread arenas as "arena"; the main arena and blocks with a mapping of their
    own as "heap"."""
    from dmods.glibc import arenas, runs
    from dmods.glibc.words import Words

    words = Words(target.image(), target.arch.word)
    hint = target.lookup("main_arena")
    mallocs = arenas.find(words, target.mappings(), hint.address if hint else None)
    layout = runs.arrange(words, mallocs, target.mappings(), PAGE)
    of_arenas = [(heap.start, heap.start + heap.size) for arena in layout.arenas for heap in arena.heaps]
    headers = [(arena.address, arena.end) for arena in layout.arenas]  # the main arena's is no heap, but in libc's data
    claims = [(start, end, "arena") for start, end in of_arenas]
    claims += [(start, end, "heap") for start, end in Ranges([*of_arenas, *headers]).without(layout.owned)]
    return sorted(claims)


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
    return str(stack) if stack else "anon"


def _is_vdso(mapping: AddressRange, vdso: Optional[int]) -> bool:
    """The vdso, the kernel's data pages right below it (arch/x86/entry/vdso/vma.c: vvar), and the old vsyscall page."""
    if mapping.start in (vdso, _VSYSCALL):
        return True
    below = vdso is not None and 0 < vdso - mapping.start <= 1 << 16
    return below and mapping.path is None and mapping.flags == "r--"


def _is_barred(mapping: AddressRange, arena_ends: Set[int], stacks: Mapping[int, str]) -> bool:
    """What cannot be accessed. gdb's gcore writes it as readable zeros, so there the place must tell: a guard page
    ends where a thread's stack begins, and the rest of an arena begins where its heap ends."""
    if mapping.path is not None:
        return False
    beside = mapping.start in arena_ends or stacks.get(mapping.end) == "thread stack"
    return mapping.flags == "---" or (mapping.flags == "r--" and beside)


def _split(mapping: AddressRange, kind: str, claims: Sequence[Claim]) -> Iterator[tuple[AddressRange, str]]:
    at = mapping.start
    for start, end, claimed in claims:
        if end <= at:
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
