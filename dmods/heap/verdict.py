"""Decide whether a search of the heap can say "clean".

A search that finds nothing proves something only if the heap was there to be searched. These functions decide that.
They look at the allocator that serves malloc, and at the memory that the dump lacks.
"""

from __future__ import annotations

from itertools import islice
from typing import Optional

from dmods.allocators.unwalked import unwalked_malloc
from dmods.base.ranges import Ranges
from dmods.base.sizes import human_size
from dmods.heap.block import LIVE
from dmods.heap.foreign import foreign_malloc, passing_malloc
from dmods.heap.heap import ProcessHeap
from dmods.modules.data import module_data
from dmods.modules.find import writable_segments
from dmods.process.addresses import module_at
from dmods.process.mappings import mapping_at
from dmods.process.threads import stacks_of
from dmods.process.zeroed import zeroed_memory
from dmods.records.auditor import is_lost
from dmods.report import Report, Verdict
from dmods.target import Module, Target

NO_VERDICT = 4  # the exit status where no verdict is possible
_LEAST_ADDRESS = 1 << 12  # smaller numbers are no addresses
_LEAST_POOL = 1 << 10  # bytes of a block that others lie in
_HEADER = 64  # bytes that a library may put before a block which it passes on
_MANY = 16  # different pointers into a pool
_MOST_POINTERS = 1 << 10
_MOST_POOLS = 64
_MOST_DATA = 1 << 20  # bytes of a library's data that are looked at
_MOST = 2  # a verdict needs more than one part in so many


def heap_verdict(heap: ProcessHeap) -> Verdict:
    """Return whether a check of the heap can say that it is sound."""
    other = unwalked_malloc(heap.target)
    if other is not None and not any(one.name == other and one.is_checked for one in heap.heaps):
        return Verdict(False, f"malloc of this process is {other}, whose heap dmods cannot walk")
    foreign = foreign_malloc(heap.target)
    if foreign is not None:
        return Verdict(False, f"malloc of this process is that of {foreign.name}, whose heap dmods cannot walk")
    tracer = passing_malloc(heap.target)
    if tracer is not None and (pool := _pool_of(heap, tracer)) is not None:
        return Verdict(
            False,
            f"malloc of this process is that of {tracer.name}, which seems to keep many blocks in one "
            f"({pool[0]:#x}-{pool[1]:#x})",
        )
    return _search_verdict(heap)


def _pool_of(heap: ProcessHeap, module: Module) -> Optional[tuple[int, int]]:
    """Return a block or a mapping out of which a library that passes calls of malloc() on gives blocks itself, or None.

    The library's data points into its middle, to where the next block will be, and memory that is not the library's
    holds many pointers into it. What a tracer keeps of its own is no business of the program.
    """
    data = [part for part in module_data(heap.target) if module.start <= part[0] < module.end]
    found: set[tuple[int, int]] = set()
    for start, end in data:
        for value in heap.words.many(start, min(end - start, _MOST_DATA) // heap.words.size) or ():
            pool = _middle_of(heap, value) if value > _LEAST_ADDRESS else None
            found.update([pool] if pool is not None else [])
    sizes = {end - start for start, end in found}
    blocks = heap.index.blocks(LIVE) if found else iter(())
    full = ((block.address, block.end) for block in blocks if block.size in sizes)  # those that were filled before
    pools = list(Ranges([*sorted(found)[:_MOST_POOLS], *islice(full, _MOST_POOLS)]))
    if not pools:
        return None
    own = Ranges([*data, *pools])
    for pool, places in zip(pools, heap.index.pointers(pools, _MOST_POINTERS)):
        others = {heap.words.at(at) for at in places if at not in own}
        if len(others) >= _MANY:
            return pool
    return None


def _middle_of(heap: ProcessHeap, address: int) -> Optional[tuple[int, int]]:
    """Return the block, or the anonymous mapping, into whose middle the address points."""
    block = heap.index.block_at(address)
    if block is not None:
        inside = address - block.address > _HEADER and block.size >= _LEAST_POOL
        return (block.address, block.end) if inside else None
    mapping = mapping_at(heap.target, address)
    if mapping is None or not mapping.anonymous or "w" not in mapping.flags or address == mapping.start:
        return None
    if address in heap.owned or module_at(heap.target, address) is not None:
        return None
    if any(stack.start <= address < stack.end for stack in stacks_of(heap.target, list(heap.owned))):
        return None
    return mapping.start, mapping.end


def _search_verdict(heap: ProcessHeap) -> Verdict:
    """Return whether the blocks and what they hold are known well enough."""
    if not heap.found:
        lost = sum(end - start for start, end in heap.target.missing)
        cut = f"; the dump is truncated and lacks {lost} bytes ({human_size(lost)})" if lost else ""
        from dmods.heap.no_heap import no_heap

        return Verdict(False, no_heap(heap.target) + cut)
    lost, unknown = lost_bytes(heap)
    doubts = [doubt for one in heap.heaps for doubt in one.doubts]
    if not lost + unknown:
        return Verdict(True, "; ".join(doubts))
    reasons = [*doubts]
    reasons += [f"{lost} of {heap.bytes} bytes of the heap are not in the dump"] if lost else []
    if unknown:
        reasons.append(f"the dump is truncated and lacks {unknown} bytes of other memory, which may be heap")
    return Verdict((lost + unknown) * _MOST < heap.bytes + unknown, "; ".join(reasons))


def leak_verdict(heap: ProcessHeap) -> Verdict:
    """Return whether a search for leaks can say what leaked.

    The memory where pointers start must be in the dump as well. Without it, live blocks look leaked.
    """
    # Where only records know the blocks, nobody can check the heap, but its blocks can be followed.
    verdict = heap_verdict(heap) if all(one.is_checked for one in heap.heaps) else _search_verdict(heap)
    if not verdict.possible:
        sampled = unwalked_malloc(heap.target) is not None and heap.records.sampled
        more = "; the auditor recorded only samples of its blocks" if sampled else ""
        return Verdict(False, verdict.reason + more)
    if is_lost(heap.target):
        return Verdict(False, "the auditor's tables cannot be told from data of the program: the dump lacks their root")
    zeroed = zeroed_memory(heap.target, [place for one in heap.heaps for place in one.zeroed])
    if zeroed:
        return Verdict(False, zeroed)
    threads = heap.target.threads()
    stacks = _lost_stacks(heap)
    if threads and stacks == len(threads):
        return Verdict(False, "no stack is in the dump: live blocks look leaked without the pointers on the stacks")
    lost, data = _data_lost(heap.target)
    if lost and lost * _MOST >= data:
        return Verdict(
            False,
            f"{lost} of {data} bytes of the data of the program and its libraries are not in the dump: "
            "live blocks look leaked without the pointers there",
        )
    reasons = [verdict.reason] if verdict.reason else []
    reasons += [f"{stacks} of {len(threads)} stacks are not in the dump"] if stacks else []
    reasons += [f"{lost} of {data} bytes of the modules' data are not in the dump"] if lost else []
    return Verdict(True, "; ".join(reasons))


def _lost_stacks(heap: ProcessHeap) -> int:
    """Return of how many threads the stack is not in the dump.

    A stack that overflowed, or whose pointer is lost, is there nevertheless where its bounds are known.
    """
    target, sp = heap.target, heap.target.arch.sp
    lost = {thread.tid for thread in target.threads() if not heap.words.many(thread.registers.get(sp, 0), 1)}
    if not lost:
        return 0
    dumped = Ranges((m.start, m.start + m.dumped) for m in target.mappings() if "w" in m.flags)
    absent = Ranges(target.missing)
    for stack in stacks_of(target, list(heap.owned)):
        mapping = mapping_at(target, stack.sp or 0)
        is_left = mapping is None or not stack.start <= mapping.start < stack.end or "w" not in mapping.flags
        bounds = (stack.start, stack.end)
        if stack.known and is_left and dumped.within(*bounds) and not absent.within(*bounds):
            lost.discard(stack.tid or 0)
    return len(lost)


def partial_note(verdict: Verdict) -> list[str]:
    """Return the note of a verdict that is possible for a part of the heap only."""
    return [f"the verdict is partial: {verdict.reason}"] if verdict.possible and verdict.reason else []


def judge(report: Report, verdict: Verdict) -> None:
    """Give the report the verdict, the note of a partial one, and the exit status where none is possible."""
    report.verdict = verdict
    report.notes.extend(partial_note(verdict))
    if not verdict.possible:
        report.status = NO_VERDICT


def lost_bytes(heap: ProcessHeap) -> tuple[int, int]:
    """Return how many bytes of the heap are not in the dump, and of other memory that may be heap."""
    return _heap_lost(heap), _anonymous_lost(heap)


def _heap_lost(heap: ProcessHeap) -> int:
    """Return how many bytes of the heap are not in the dump."""
    lost = Ranges(part for report in heap.index.reports for part in report["missing"])
    dumped = Ranges((m.start, m.end) for m in heap.target.mappings() if m.dumped)
    for start, end in heap.index.engine.missing:  # the kernel leaves out what was never touched: whole mappings
        for part in dumped.within(start, end):
            lost.add(*part)
    for start, end in heap.target.missing:
        for part in heap.owned.within(start, end):
            lost.add(*part)
    return lost.size()


def _data_lost(target: Target) -> tuple[int, int]:
    """Return how many bytes of the modules' writable data a truncated dump lacks, and how many there are."""
    data = Ranges(writable_segments(target))
    return sum(end - start for gap in target.missing for start, end in data.within(*gap)), data.size()


def _anonymous_lost(heap: ProcessHeap) -> int:
    """Return how many bytes of writable memory a truncated dump lacks that are neither known heap nor of a file."""
    anonymous = Ranges((m.start, m.end) for m in heap.target.mappings() if "w" in m.flags and m.anonymous)
    gaps = [part for gap in heap.target.missing for part in anonymous.within(*gap)]
    return sum(end - start for start, end in heap.owned.without(gaps))
