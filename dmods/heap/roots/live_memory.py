"""The roots of a process: memory and registers that are live without anything pointing to them. Marking starts here.

Roots are the registers of every thread (general, vector and floating-point), every stack from its stack pointer up, the
writable data of every module, TLS, and all other memory in the dump that does not belong to an allocator: also memory
that was written and is read-only now. What files contain from the linker is no root. Memory below a
stack pointer, the stacks of exited threads that glibc keeps for reuse, and the bookkeeping of allocators are no roots.
`false_pointers` takes further words out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, Optional

from dmods.allocators.search import above_stack_pointers
from dmods.base.dataclass import dataclass, replace
from dmods.base.ranges import Ranges
from dmods.heap.roots.dead_stacks import Block, Stacks, dead_in_made_stacks, dead_stacks
from dmods.heap.roots.readonly import ReadOnly, unreadable_code
from dmods.heap.roots.signal_frames import integers_in_signal_frames
from dmods.modules.find import VDSO, writable_segments
from dmods.process.ended_threads import ended_first_stack
from dmods.process.mappings import is_named_memory
from dmods.process.stack_bounds import known_stack
from dmods.process.threads import survey_threads
from dmods.process.vectors import values as vector_values
from dmods.records.model import Records
from dmods.target import AddressRange, Target

# A core lacks shared file mappings by default (coredump_filter bit 3). Up to this many bytes of them are read from the
# files.
_MOST_FROM_FILES = 256 << 20
# The mappings of rings and of submission entries (io_uring/io_uring.c, anon_inode_create_getfile). Cores leave shared
# file mappings out, and older kernels call these device memory (VM_IO).
_IO_URING = "anon_inode:[io_uring]"


@dataclass(frozen=True)
class Roots:
    """The start of marking: the second stage of a heap.

    ``values`` are registers; ``vectors`` words of vector and floating-point registers that are in no other. ``dead`` is
    memory whose words hold nothing: of stacks that are not in use, and what ``without`` took out. ``thread_pointers``
    include those of threads that have exited, and words that look like one.
    """

    ranges: Sequence[tuple[int, int]]
    values: Sequence[int]
    vectors: Sequence[int]
    dead: Sequence[tuple[int, int]]
    notes: Sequence[str]
    thread_pointers: Sequence[int]
    stacks: Stacks

    def without(self, dead: Iterable[tuple[int, int]]) -> Roots:
        """Return the roots without further dead memory."""
        found = Ranges(dead)
        return replace(self, ranges=found.without(self.ranges), dead=list(Ranges([*self.dead, *found])))


def find_roots(target: Target, owned: Ranges, records: Records) -> Roots:
    """Return the roots of a process whose allocators own `owned`.

    Dead stack memory may lie within blocks, where a program allocated a stack. The records of the auditor keep no block
    alive.
    """
    notes: list[str] = []
    excluded = Ranges([*owned, *records.own])
    survey = survey_threads(target, list(excluded))
    known = {stack.tcb for stack in survey.stacks if stack.tcb is not None}
    stacks = dead_stacks(target, survey.stacks, notes)
    ended = ended_first_stack(target, survey)
    dead = Ranges([*stacks.dead, *records.scratch, *([ended] if ended is not None else [])])
    general = {value for thread in target.threads() for value in thread.registers.values()}
    notes.extend(_notes_on_registers(target))
    for start, end in dead:
        excluded.add(start, end)
    ranges = excluded.without(_memory(target, owned, notes))
    unreadable = unreadable_code(target)
    if unreadable:
        mappings = "1 mapping" if len(unreadable) == 1 else f"{len(unreadable)} mappings"
        notes.append(
            f"the kernel could not read {mappings} of execute-only memory: a block that only this memory holds is "
            "reported as leaked (gdb's gcore of the living process has its bytes)"
        )
    vectors, pointers = sorted(_vector_values(target) - general), sorted(known | {*survey.other_pointers})
    return Roots(ranges, list(general), vectors, list(dead), notes, pointers, stacks)


def _notes_on_registers(target: Target) -> Iterator[str]:
    """Yield what the dump lacks of the threads' registers, and of the requests that the kernel has in flight."""
    if not target.threads():
        yield "no registers and stack pointers are known: all of every stack counts as live"
    elif all(thread.vectors is None for thread in target.threads()):
        yield "the dump has no vector registers: a block that only such a register holds is reported as leaked"
    if any((mapping.path or "").startswith(_IO_URING) for mapping in target.mappings()):
        yield (
            "the process uses io_uring: cores lack its rings, and the kernel holds the requests in flight; "
            "a block that only they point to is reported as leaked"
        )


def _vector_values(target: Target) -> set[int]:
    found = {lane.value for _tid, lane in integers_in_signal_frames(target)}
    for thread in target.threads():
        if thread.vectors is not None:
            found |= vector_values(thread.vectors, target.arch.word)
    return found


def live_stacks(target: Target, roots: Roots) -> list[tuple[int, int]]:
    """Return the roots on the threads' stacks, also on those that a thread left for a signal handler."""
    known = [bounds for thread in target.threads() if (bounds := known_stack(target, thread)) is not None]
    stacks = Ranges([*above_stack_pointers(target), *known, *roots.stacks.live])
    return [part for start, end in roots.ranges for part in stacks.within(start, end)]


def dead_made_stacks(
    target: Target, roots: Roots, owned: Ranges, block_of: Callable[[int], Optional[Block]]
) -> list[tuple[int, int]]:
    """Return the dead parts of stacks that the program made.

    ``block_of`` returns the live block that holds an address.
    """
    if not roots.stacks.made:
        return []
    return dead_in_made_stacks(target, roots.stacks, owned, [*roots.ranges, *owned], block_of)


def _memory(target: Target, owned: Ranges, notes: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the readable memory that can hold a pointer which the program wrote."""
    from_files, left_out, lacking = 0, 0, 0
    read_only = ReadOnly(target, owned)
    written = Ranges(writable_segments(target))
    kernels = {
        module.start for module in target.modules() if module.path == VDSO
    }  # code and tables, never the program's
    for mapping in target.mappings():
        if mapping.start in kernels:
            continue
        if mapping.dumped and ("w" in mapping.flags or mapping.path is None):
            # The present access does not matter: programs lock memory that they have written (PROT_NONE, PROT_EXEC).
            yield mapping.start, mapping.start + mapping.dumped
        elif "w" not in mapping.flags:
            # Segments that the file declares writable were written, if only by the dynamic linker (PT_GNU_RELRO).
            yield from written.within(mapping.start, mapping.end)
            if target.path is None and read_only.is_plain_file(mapping):
                # Of a live process, all of a mapped database can be read.
                from_files += mapping.dumped
                if from_files > _MOST_FROM_FILES:
                    from_files -= mapping.dumped
                    left_out += mapping.dumped
                    continue
            if "r" in mapping.flags and is_named_memory(mapping.path):
                lacking += mapping.size - mapping.dumped
            if mapping.dumped:
                yield from written.without(read_only.written(mapping))
        elif mapping.path is None or from_files + mapping.size <= _MOST_FROM_FILES:
            from_files += mapping.size if mapping.path is not None else 0
            yield mapping.start, mapping.end
        else:
            left_out += mapping.size
    if left_out:
        notes.append(f"{left_out} bytes of mapped files that are not in a core were not searched for pointers")
    if lacking:
        notes.append(
            f"{lacking} bytes of shared memory that the process could only read are not in the dump: a block that only "
            "they hold is reported as leaked"
        )


def readable_ranges(target: Target, mappings: Iterable[AddressRange]) -> list[tuple[int, int]]:
    """Return all memory that may hold an address and can be read, in the dump or from the files.

    Pages of a position-independent file that were never written hold no address; the dump lacks them.
    """
    moved = {module.path for module in target.modules() if module.bias}
    return [
        (m.start, m.start + m.dumped if m.path in moved and "w" not in m.flags else m.end)
        for m in mappings
        if m.dumped or ("r" in m.flags and (m.path not in moved or "w" in m.flags))
    ]
