"""The facts that the checks of processes look at. Each fact is computed once; the commands compute the same ones."""

from __future__ import annotations

import struct
from functools import cached_property, lru_cache
from typing import Optional

from dmods._engine import disassemble, elf_section
from dmods.allocators.unwalked import is_go
from dmods.base.sizes import human_size
from dmods.finding import CannotCheck
from dmods.graph.owners.heap_owners import Owners, find_owners
from dmods.heap.damage import Damage, damages
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.locate import AddressFinder, quick_finder
from dmods.heap.mapping_content import Content, large_mappings
from dmods.heap.verdict import heap_verdict, leak_verdict
from dmods.modules.lines import source_lines
from dmods.process.cause import Cause, find_cause
from dmods.process.mappings import mapping_at
from dmods.process.source import source_place
from dmods.process.threads import find_thread
from dmods.process.tls import dtv_blocks
from dmods.process.unwind import Frame, ManyThreads, Stack, describe, walk
from dmods.records.callers import Callers
from dmods.target import Target, Thread
from dmods.triage.answer import left_out
from dmods.triage.names import HANDLER, first_own, is_runtime

_LONGEST_INSTRUCTION = 15  # of x86 (Intel SDM volume 2, 2.3.11)
_MOST_THREADS = 20_000  # threads whose stacks are read
_ENOMEM = 12
_STT_TLS = 6
_MOST_FRAMES = 64  # of the stacks of other threads


@lru_cache(maxsize=64)
def errno_offset(path: str) -> Optional[int]:
    """Return the offset of `errno` in the thread-local memory of a C library, or of a static program with its symbols.

    None for any other file.
    """
    names, symbols = elf_section(path, ".dynstr") or b"", elf_section(path, ".dynsym") or b""
    if not symbols:
        names, symbols = elf_section(path, ".strtab") or b"", elf_section(path, ".symtab") or b""
    if b"errno\0" not in names:
        return None
    # Elf64_Sym: st_name, st_info, st_other, st_shndx, st_value, st_size. A thread-local one has the type STT_TLS.
    for name, info, _other, section, value, _size in struct.iter_unpack("<IBBHQQ", symbols[: len(symbols) // 24 * 24]):
        if info & 0xF == _STT_TLS and section and names[name : name + 6] == b"errno\0":
            return int(value)
    return None


#: Blocks in use: debug information gives the types of more only to `suspects` and `findleaks`.
MOST_TYPED = 400_000


class ProcessFacts:
    """The facts of one process. ``private``: no contents of its memory may be shown."""

    budgets = {"cause": 30.0, "heap": 300.0, "leaks": 300.0, "owners": 120.0, "stacks": 60.0}  # noqa: RUF012

    def __init__(self, target: Target, private: bool = False, thread: Optional[Thread] = None) -> None:
        self.target = target
        self.private = private
        self._thread = thread

    def provide(self, name: str) -> None:
        """Compute a fact that checks name in ``needs``. Raises CannotCheck."""
        if name == "cause":
            _ = self.cause, self.stack
        elif name == "heap":
            verdict = heap_verdict(self.heap)
            if not verdict.possible:
                raise CannotCheck(verdict.reason)
        elif name == "leaks":
            verdict = leak_verdict(self.heap)
            if not verdict.possible:
                raise CannotCheck(verdict.reason)
        elif name == "owners":
            self.provide("leaks")
            _ = self.owners
        elif name == "stacks":
            _ = self.stacks

    # -- how it died ----------------------------------------------------------------------------------------------

    @cached_property
    def thread(self) -> Thread:
        """Return the thread that is looked at: the one that died, or the first thread."""
        return self._thread or find_thread(self.target, None)

    @cached_property
    def cause(self) -> Cause:
        """Return why the process died, as panicinfo does."""
        return find_cause(self.target)

    @cached_property
    def stack(self) -> Stack:
        """Return the stack of the thread that died."""
        return walk(self.target, self.thread)

    @cached_property
    def frames(self) -> list[Frame]:
        """Return the frames from the trap on: those of a signal handler are left out."""
        frames, trap = self.stack.frames, self.cause.frame
        if not self.cause.handled or trap is None:
            return frames
        found = [index for index, frame in enumerate(frames) if (frame.pc, frame.sp) == (trap.pc, trap.sp)]
        return frames[found[0] :] if found else frames

    @cached_property
    def names(self) -> list[str]:
        """Return the functions of these frames, as a stack shows them."""
        return [self.place(frame) for frame in self.frames]

    def place(self, frame: Frame) -> str:
        """Return ``module`symbol+offset`` of a frame. What a handler returns to may have no name: HANDLER."""
        place = describe(self.target, frame)
        return HANDLER if frame.trampoline and place.startswith("0x") else place

    def own_place(self) -> str:
        """Return the innermost function of the program on the stack, with its source line where that is known."""
        own = first_own(self.names)
        if own is None:
            return self.names[-1] if self.names else "an unknown function"
        return self.place_with_line(own)

    def place_with_line(self, number: int) -> str:
        """Return a frame as ``function+0x12 [file.c:42]``. Where a function was inlined there, its name comes first."""
        frame = self.frames[number]
        found = source_lines(self.target).frames_at(frame.code_address, frame.exact)
        # A function of a runtime may be inlined there, too: the line of the program says more.
        place = next(
            (each for each in found if each.function and not is_runtime(each.function)), found[0] if found else None
        )
        inlined = f"{place.function} in " if place is not None and place is not found[-1] and place.function else ""
        line = source_place(place) if place is not None else ""
        return f"{inlined}{self.names[number]}" + (f" [{line}]" if line else "")

    @cached_property
    def stack_start(self) -> int:
        """Return the lowest address of the mapping that the dying thread's stack pointer lies in, or that pointer."""
        sp = self.frames[0].sp if self.frames else 0
        mapping = mapping_at(self.target, sp)
        return mapping.start if mapping is not None else sp

    @cached_property
    def instruction(self) -> str:
        """Return the instruction that trapped, or ""."""
        frame = self.cause.frame
        code = self.target.image().read(frame.pc, _LONGEST_INSTRUCTION) if frame is not None else b""
        decoded = disassemble(self.target.arch.name, code, frame.pc) if code and frame is not None else None
        return decoded[0] if decoded else ""

    @cached_property
    def stacks(self) -> list[tuple[Thread, Stack]]:
        """Return every thread with its stack, cut at 64 frames."""
        many = ManyThreads(self.target, _MOST_FRAMES)
        return [(thread, many.walk(thread)) for thread in self.target.threads()[:_MOST_THREADS]]

    # -- memory ---------------------------------------------------------------------------------------------------

    @cached_property
    def heap(self) -> ProcessHeap:
        """Return the heap."""
        return find_heap(self.target)

    @cached_property
    def spreads_types(self) -> bool:
        """Return whether the heap is small enough for the types of debug information."""
        return sum(used for _size, used, _free, _own in self.heap.index.engine.sizes()) <= MOST_TYPED

    @cached_property
    def damaged(self) -> bool:
        """Return whether a header of the heap contradicts the others."""
        return next(iter(damages(self.heap)), None) is not None

    @cached_property
    def owners(self) -> Owners:
        """Return who holds the heap."""
        return find_owners(self.target)

    @cached_property
    def errnos(self) -> frozenset[int]:
        """Return the values of errno of the thread that died. Each C library of the process has its own."""
        tcb = self.thread.registers.get(self.target.arch.thread_pointer) if self.target.arch.thread_pointer else None
        offset = next((at for m in self.target.modules() if m.file and (at := errno_offset(m.file)) is not None), None)
        if tcb is None or offset is None:
            return frozenset()
        values = (self.heap.words.int32(at + offset) for at in dtv_blocks(self.heap.words, self.target.arch, tcb))
        return frozenset(value for value in values if value is not None)

    @cached_property
    def exhausted(self) -> Optional[str]:
        """Return in words that the thread's errno is ENOMEM, or None. An earlier call may have left it."""
        if _ENOMEM not in self.errnos:
            return None
        size = sum(mapping.size for mapping in self.target.mappings() if mapping.flags != "---")
        return f"errno is ENOMEM, and the process has {human_size(size)} of memory mapped"

    @cached_property
    def large_mappings(self) -> list[Content]:
        """Return what the large anonymous mappings hold that belong to no allocator and no stack."""
        return large_mappings(self.target)

    @cached_property
    def finder(self) -> AddressFinder:
        """Return what names addresses."""
        return quick_finder(self.target)

    @cached_property
    def callers(self) -> Callers:
        """Return what names the callers of recorded allocations."""
        return Callers(self.target)

    @cached_property
    def is_go(self) -> bool:
        """Return whether the program is written in Go."""
        return is_go(self.target)

    def content(self, text: Optional[str], kind: str = "text") -> str:
        """Return text that was read from memory; only its kind and length where contents are private."""
        if not text:
            return ""
        return left_out(kind, text) if self.private else text

    def named(self, thread: Thread) -> str:
        """Return the thread's id and name. The program gave the name: it is left out where contents are private."""
        return f"{thread.tid} ({thread.name})" if thread.name and not self.private else str(thread.tid)

    def damage(self, damage: Damage) -> str:
        """Return what is wrong with a chunk. What was written into its header may be left out."""
        return damage.private if self.private else damage.what
