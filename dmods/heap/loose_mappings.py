"""Anonymous memory that the program mapped itself: no allocator, stack, module or kernel area explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.heap.mapping_kinds import classify_mappings
from dmods.modules.find import writable_segments
from dmods.records.mapped import recorded_parts
from dmods.target import AddressRange, Target

_ALLOCATORS = ("arena", "heap")
_STACKS = ("stack", "thread stack")
_Kinded = tuple[AddressRange, str]


class Loose(NamedTuple):
    """Memory ``[start, end)`` that was mapped as one, as far as the dump shows it.

    ``size`` is how many of its bytes can be written, and ``dumped`` how many of these are in the dump.
    """

    start: int
    end: int
    size: int
    dumped: int


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
            size, dumped = sum(each.size for each in writable), sum(each.dumped for each in writable)
            found.append(Loose(parts[0].start, parts[-1].end, size, dumped))
    return found


def _runs(target: Target) -> Iterator[list[AddressRange]]:
    """Yield the mappings that nothing explains; those that touch together."""
    kinded = classify_mappings(target)
    modules = Ranges(sorted([*((each.start, each.end) for each in target.modules()), *writable_segments(target)]))
    run: list[AddressRange] = []
    for index, (mapping, _kind) in enumerate(kinded):
        loose = _is_loose(kinded, index, modules)
        if run and not (loose and run[-1].end == mapping.start):
            yield run
            run = []
        if loose:
            run.append(mapping)
    if run:
        yield run


def _is_loose(kinded: Sequence[_Kinded], index: int, modules: Ranges) -> bool:
    mapping, kind = kinded[index]
    before = kinded[index - 1] if index and kinded[index - 1][0].end == mapping.start else None
    if kind == "anon":
        # Data that begins as zeros (.bss) follows the data of a file. Where the file is not here, nobody knows its end.
        is_bss = before is not None and before[1] == "file data" and "w" in before[0].flags
        return not is_bss and not modules.within(mapping.start, mapping.end)
    if kind != "reserved" or not mapping.anonymous:
        return False
    # The guard of a stack, and the rest of an arena, which no program has ever used.
    after = kinded[index + 1] if index + 1 < len(kinded) and kinded[index + 1][0].start == mapping.end else None
    is_rest = before is not None and before[1] in _ALLOCATORS
    return not is_rest and not (after is not None and after[1] in _STACKS)


def _cut(run: Sequence[AddressRange], recorded: Sequence[tuple[int, int]]) -> Iterator[list[AddressRange]]:
    """Yield the parts of a run that one call mapped, and those without a record between them."""
    at, pieces = run[0].start, []
    for start, end in recorded:
        if start < at:
            continue  # damaged records overlap
        pieces += [(at, start), (start, end)]
        at = end
    for start, end in [*pieces, (at, run[-1].end)]:
        parts = [
            each.part(max(each.start, start), min(each.end, end))
            for each in run
            if each.start < end and start < each.end
        ]
        if parts:
            yield parts
