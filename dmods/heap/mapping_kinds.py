"""Say what each mapping of a process is for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from typing import Any, Optional

from dmods.base.ranges import Ranges
from dmods.base.rows import Rows
from dmods.process.addresses import module_at
from dmods.process.threads import stacks_of
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
    "unknown",
    "vdso",
    "reserved",
)

# Memory that processes share, as the kernel names it in maps: POSIX and System V shared memory, memfd_create(), and
# anonymous MAP_SHARED (mm/shmem.c: "/dev/zero (deleted)").
_SHARED = ("/dev/shm/", "/SYSV", "/memfd:", "/dev/zero")

_HUGE = "/anon_hugepage"  # MAP_HUGETLB without a file (include/linux/hugetlb.h, HUGETLB_ANON_FILE)
_VSYSCALL = 0xFFFFFFFFFF600000  # arch/x86/include/uapi/asm/vsyscall.h: VSYSCALL_ADDR

Claim = tuple[int, int, str]  # start, end, kind
_LAST = 1 << 64


def classify_mappings(target: Target) -> Sequence[tuple[AddressRange, str]]:
    """Return every mapping with its kind, by address. A mapping is split if only a part of it is the allocator's.

    The allocator knows its heaps and arenas. glibc's thread records say where stacks lie, also those of exited threads
    that glibc keeps for reuse. The modules name the vdso. The path decides for all others. "reserved" is address space
    that cannot be accessed (a guard page, the unused end of an arena): it has no memory. "unknown" is memory without
    bytes in a dump that does not say which files were mapped: the kernel leaves out mappings of files, and anonymous
    memory that nobody has touched.
    """
    vdso = next((module.start for module in target.modules() if module.path == "[vdso]"), None)
    sure, others = allocator_claims(target)
    claims = sorted([*sure, *others])
    arena_ends = {end for _start, end, kind in claims if kind == "arena"}
    stacks = stack_claims(target, claims)
    claims = sorted(claims + stacks)
    found = Rows(_kinded, "QQOOQQO")
    for mapping in target.mappings():
        if _is_vdso(mapping, vdso) and (target.names_files or mapping.dumped):
            kind = "vdso"
        elif _is_reserved(mapping, arena_ends, stacks):
            kind = "reserved"
        else:
            kind = _kind(mapping, target.names_files)
        for part, its in _split(mapping, kind, claims if mapping.anonymous and "w" in mapping.flags else sure):
            found.append((*part, its))
    return found


def _kinded(*fields: Any) -> tuple[AddressRange, str]:
    return AddressRange(*fields[:-1]), fields[-1]


def other_anonymous_bytes(target: Target) -> tuple[int, int]:
    """Return the bytes of anonymous memory that is neither a stack nor of an allocator that dmods walks.

    The second number is how many of them are in the dump: programs exclude what they only reserve (MADV_DONTDUMP).
    """
    parts = [part for part, kind in classify_mappings(target) if kind == "anon" and "w" in part.flags]
    return sum(part.size for part in parts), sum(part.dumped for part in parts)


def allocator_claims(target: Target) -> tuple[list[Claim], list[Claim]]:
    """Return the memory of the allocators. "arena": thread arenas of glibc. "heap": the main arena, blocks that have
    their own mapping, and all memory of jemalloc.

    The first are theirs whatever the program did there: it may have locked a page of a block, or mapped a file over it.
    Of the others only memory that can be written is theirs: allocators reserve more.
    """
    from dmods.heap.survey import survey

    found = survey(target)
    claims = [claim for heap in found.heaps for claim in heap.claims()]
    rest = Ranges((start, end) for start, end, _name in claims).without(found.owned)
    return sorted(claim for claim in claims if claim[2]), [(start, end, "heap") for start, end in rest]


def stack_claims(target: Target, taken: Sequence[Claim]) -> list[Claim]:
    """Return the stacks outside ``taken``: "stack" for the first thread, "thread stack" for the others."""
    known = Ranges((start, end) for start, end, _kind in taken)
    claims: list[Claim] = []
    for stack in stacks_of(target, list(known)):
        if not stack.known and module_at(target, stack.start) is not None:
            continue  # a stack that the program made in its own data
        made = stack.tid != target.pid or (stack.tcb is not None and stack.start <= stack.tcb < stack.end)
        parts = known.without([(stack.start, stack.end)])
        claims += [(start, end, "thread stack" if made else "stack") for start, end in parts]
        known.add(stack.start, stack.end)
    return sorted(claims)


def _kind(mapping: AddressRange, names_files: bool) -> str:
    if mapping.path is None and not names_files and mapping.dumped < mapping.size:
        return "unknown"
    if mapping.path is None or mapping.path.startswith(_HUGE):
        return "anon"
    if mapping.path.startswith(_SHARED):
        return "shared"
    return "file text" if "x" in mapping.flags else "file data"


def _is_vdso(mapping: AddressRange, vdso: Optional[int]) -> bool:
    """Return whether the mapping is the vdso, the pages below it (arch/x86/entry/vdso/vma.c: vvar), or vsyscall."""
    if mapping.start in (vdso, _VSYSCALL):
        return True
    below = vdso is not None and 0 < vdso - mapping.start <= 1 << 16
    return below and mapping.path is None and mapping.flags == "r--"


def _is_reserved(mapping: AddressRange, arena_ends: Set[int], stacks: Sequence[Claim]) -> bool:
    """Return whether the mapping cannot be accessed.

    gdb's gcore writes such memory as readable zeros. Then the place decides: a stack begins with its guard, and the
    unused rest of an arena begins where its heap ends.
    """
    if mapping.path is not None and not mapping.path.startswith(_HUGE):
        return False
    if mapping.flags == "r--":
        guards = any(kind == "thread stack" for _start, _end, kind in _within(stacks, mapping))
        return guards or mapping.start in arena_ends
    return mapping.flags == "---"


def _within(claims: Sequence[Claim], mapping: AddressRange) -> Iterator[Claim]:
    """Yield the claims on a part of the mapping. ``claims`` are sorted and disjoint."""
    # The first of them is the last claim that begins at or before the mapping, or the claim after it.
    first = max(0, bisect_right(claims, (mapping.start, _LAST, "")) - 1)
    for index in range(first, len(claims)):
        if claims[index][0] >= mapping.end:
            return
        if claims[index][1] > mapping.start:
            yield claims[index]


def _split(mapping: AddressRange, kind: str, claims: Sequence[Claim]) -> Iterator[tuple[AddressRange, str]]:
    at = mapping.start
    for start, end, claimed in _within(claims, mapping):
        if start > at:
            yield mapping.part(at, start), kind
        yield mapping.part(max(start, at), min(end, mapping.end)), claimed
        at = min(end, mapping.end)
    if at < mapping.end:
        yield mapping.part(at, mapping.end) if at > mapping.start else mapping, kind
