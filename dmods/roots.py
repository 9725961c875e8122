"""What is live without anything pointing to it: where marking starts.

Registers of every thread; every stack from SP up; writable data of every module; TLS; and all other readable memory that is not the
allocator's. Not: what lies below a stack pointer, the stacks of exited threads that glibc keeps for reuse, the allocator's own
bookkeeping.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dmods.ranges import Ranges
from dmods.target import AddressRange, Target, Thread
from dmods.threads import live_stacks, stacks_of

# Shared file mappings are not in a core by default (coredump_filter bit 3); up to this much of them is read from the files.
_MOST_FROM_FILES = 256 << 20


@dataclass
class Roots:
    ranges: list[tuple[int, int]] = field(default_factory=list)
    values: list[int] = field(default_factory=list)  # registers
    dead: list[tuple[int, int]] = field(default_factory=list)  # stack memory that is not in use
    notes: list[str] = field(default_factory=list)


def find(target: Target, owned: Ranges) -> Roots:
    """The roots of a process whose allocator owns ``owned``. ``dead`` may lie within blocks, too (stacks that a program allocated)."""
    roots = Roots()
    dead = Ranges(_dead_stacks(target, owned))
    roots.dead = list(dead)
    for thread in target.threads():
        roots.values.extend(thread.registers.values())
    if not target.threads():
        roots.notes.append("no registers and stack pointers are known: all of every stack counts as live")
    excluded = Ranges(owned)
    for start, end in dead:
        excluded.add(start, end)
    roots.ranges = excluded.without(_memory(target, roots.notes))
    return roots


def _memory(target: Target, notes: list[str]) -> Iterable[tuple[int, int]]:
    """Readable memory that can hold a pointer which the program wrote."""
    from_files, left_out = 0, 0
    for mapping in target.mappings():
        if "r" not in mapping.flags:
            continue
        if "w" not in mapping.flags or mapping.dumped:
            # What is read-only now may have been written before (RELRO, a sealed table): then the dump has it.
            if mapping.dumped:
                yield mapping.start, mapping.start + mapping.dumped
            continue
        if mapping.path is None or from_files + mapping.size <= _MOST_FROM_FILES:
            from_files += mapping.size if mapping.path is not None else 0
            yield mapping.start, mapping.end
        else:
            left_out += mapping.size
    if left_out:
        notes.append(f"{left_out} bytes of shared file mappings that are not in the core were not searched for pointers")


def _dead_stacks(target: Target, owned: Ranges) -> Iterable[tuple[int, int]]:
    threads = {thread.tid: thread for thread in target.threads()}
    for stack in stacks_of(target, list(owned)):
        if stack.tid is None:
            # Exited: its struct pthread still anchors what glibc keeps for the next thread (the dtv).
            yield stack.start, stack.tcb if stack.tcb is not None else stack.end
            continue
        thread = threads.get(stack.tid)
        if thread is None or stack.sp is None:
            continue
        live = Ranges((_in_use(target, thread, sp, low=stack.start), end) for sp, end, _note in live_stacks(target, thread))
        if any(start < stack.end and stack.start < end for start, end in live):
            yield from live.without([(stack.start, stack.end)])


def _in_use(target: Target, thread: Thread, sp: int, low: int) -> int:
    """Where the live part of a stack begins: at sp, or below it by the red zone when a leaf function was interrupted. In a system call
    the innermost function is libc's wrapper, which keeps nothing there."""
    arch = target.arch
    if sp != thread.registers.get(arch.sp) or not arch.red_zone:
        return sp
    pc = thread.registers.get(arch.pc, 0)
    in_system_call = target.image().read(pc - 2, 2) == b"\x0f\x05"
    return sp if in_system_call else max(low, sp - arch.red_zone)


def readable(mappings: Iterable[AddressRange]) -> list[tuple[int, int]]:
    """All readable mappings, for a search that leaves nothing out."""
    return [(m.start, m.end) for m in mappings if "r" in m.flags]
