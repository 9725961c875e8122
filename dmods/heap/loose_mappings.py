"""Memory that the program mapped itself, anonymous or of a file: nothing else explains it.

Explained are allocators, stacks, modules and the kernel's own areas.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.heap.mapping_kinds import classify_mappings
from dmods.modules.find import writable_segments
from dmods.process.addresses import module_at
from dmods.process.mappings import mapping_at
from dmods.records.mapped import recorded_parts
from dmods.records.sources import allocation_records
from dmods.target import AddressRange, Target

_HEAP_MAX = {8: 64 << 20, 4: 1 << 20}  # by the size of a word; a multiple of it with huge pages
_STACKS = ("stack", "thread stack")
_Kinded = tuple[AddressRange, str]


class Loose(NamedTuple):
    """Memory ``[start, end)`` that was mapped as one, as far as the dump shows it.

    ``parts`` are those of it that can be written, and ``dumped`` is how many of their bytes are in the dump. With the
    ``path`` of a file, all of it are parts.
    """

    start: int
    end: int
    parts: tuple[tuple[int, int], ...]
    dumped: int
    path: Optional[str] = None

    @property
    def size(self) -> int:
        """Return how many of its bytes can be written; of a file, all of them."""
        return sum(end - start for start, end in self.parts)


def loose_mappings(target: Target) -> list[Loose]:
    """Return the memory by address. Memory with code that the program made is not among it.

    The auditor's records say where one mapping ends and the next begins. Without them, mappings that touch count as
    one: mprotect(2) and madvise(2) split a mapping, and the kernel joins neighbours with equal rights.
    """
    found = []
    for run in _runs(target):
        for parts in _cut(run, recorded_parts(target, run[0].start, run[-1].end)):
            if any("x" in each.flags for each in parts) or not any("w" in each.flags for each in parts):
                continue
            writable = [each for each in parts if "w" in each.flags]
            bounds = tuple((each.start, each.end) for each in writable)
            found.append(Loose(parts[0].start, parts[-1].end, bounds, sum(each.dumped for each in writable)))
    return sorted([*found, *_files(target)])


def _files(target: Target) -> Iterator[Loose]:
    """Yield the mappings of files that are no modules and have no code. Pieces that touch and go on in the file are one
    mapping."""
    kinded = classify_mappings(target)
    code = {module.path for module in target.modules()} | {each.path for each, kind in kinded if kind == "file text"}
    own = Ranges(allocation_records(target).own)
    run: list[AddressRange] = []
    for mapping, kind in kinded:
        wanted = kind == "file data" and (mapping.path or "").startswith("/") and mapping.path not in code
        wanted = wanted and not own.within(mapping.start, mapping.end) and module_at(target, mapping.start) is None
        if run and not (wanted and _goes_on(run[-1], mapping)):
            yield _file(run)
            run = []
        if wanted:
            run.append(mapping)
    if run:
        yield _file(run)


def _goes_on(before: AddressRange, mapping: AddressRange) -> bool:
    together = before.end == mapping.start and before.path == mapping.path
    return together and before.offset + before.size == mapping.offset


def _file(run: Sequence[AddressRange]) -> Loose:
    parts = tuple((each.start, each.end) for each in run)
    return Loose(run[0].start, run[-1].end, parts, sum(each.dumped for each in run), run[0].path)


def _runs(target: Target) -> Iterator[list[AddressRange]]:
    """Yield the mappings that nothing explains; those that touch together."""
    kinded = classify_mappings(target)
    explained = Ranges(
        sorted(
            [
                *((each.start, each.end) for each in target.modules()),
                *writable_segments(target),
                *allocation_records(target).own,
            ]
        )
    )
    break_ = _break(target)
    if break_ is not None:
        explained.add(break_.start, break_.end)
    rests = _rests_of_arenas(kinded, target.arch.word)
    run: list[AddressRange] = []
    for index, (mapping, _kind) in enumerate(kinded):
        loose = index not in rests and _is_loose(kinded, index, explained)
        if run and not (loose and run[-1].end == mapping.start):
            yield run
            run = []
        if loose:
            run.append(mapping)
    if run:
        yield run


def _break(target: Target) -> Optional[AddressRange]:
    """Return the mapping that brk(2) made: the kernel holds it. None: libc does not say where it is."""
    symbol = target.lookup("__curbrk")
    end = Words(target.image(), target.arch.word).at(symbol.address) if symbol is not None else None
    return mapping_at(target, end - 1) if end else None


def _is_loose(kinded: Sequence[_Kinded], index: int, explained: Ranges) -> bool:
    mapping, kind = kinded[index]
    if kind == "anon":
        # Data that begins as zeros (.bss) follows the data of a file. Where the file is not here, nobody knows its end.
        before = kinded[index - 1] if index and kinded[index - 1][0].end == mapping.start else None
        is_bss = before is not None and before[1] == "file data" and "w" in before[0].flags
        return not is_bss and not explained.within(mapping.start, mapping.end)
    if kind != "reserved" or not mapping.anonymous:
        return False
    after = kinded[index + 1] if index + 1 < len(kinded) and kinded[index + 1][0].start == mapping.end else None
    return after is None or after[1] not in _STACKS  # the guard of a stack


def _rests_of_arenas(kinded: Sequence[_Kinded], word: int) -> set[int]:
    """Return the numbers of the mappings that are the unused ends of glibc's arenas.

    A heap of an arena grows up to HEAP_MAX_SIZE, and begins at a multiple of it (malloc/arena.c). Behind its top comes
    memory that can still be written where the heap has shrunk (heap_info.mprotect_size), then what cannot be accessed.
    gcore writes that as if it could be read.
    """
    found, is_behind = set(), False
    for index, (mapping, kind) in enumerate(kinded):
        touches = index > 0 and kinded[index - 1][0].end == mapping.start and mapping.start % _HEAP_MAX[word] != 0
        is_behind = touches and (is_behind or kinded[index - 1][1] == "arena") and kind in ("anon", "reserved")
        if is_behind:
            found.add(index)
            is_behind = "w" in mapping.flags
    return found


def _cut(run: Sequence[AddressRange], recorded: Sequence[tuple[int, int]]) -> Iterator[list[AddressRange]]:
    """Yield the parts of a run that one call mapped, and those without a record between them."""
    at, pieces = run[0].start, []
    for start, end in recorded:
        if start < at:
            continue  # damaged records overlap
        pieces += [(at, start), (start, end)]
        at = end
    starts = [each.start for each in run]
    for start, end in [*pieces, (at, run[-1].end)]:
        first, last = max(0, bisect_right(starts, start) - 1), bisect_left(starts, end)
        parts = [each.part(max(each.start, start), min(each.end, end)) for each in run[first:last] if start < end]
        if parts:
            yield parts
