"""What lies at an address, in words: the allocator's structures, stacks and their frames, thread-local memory,
variables, mappings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Optional

from dmods import heap as heaps
from dmods import stacks
from dmods.blocks import arena_name, arena_of
from dmods.content import class_of, mapping_of
from dmods.freelists import FreeLists
from dmods.glibc.arenas import first_chunk
from dmods.glibc.runs import top_size
from dmods.heap import DIRECT, FREE, INDIRECT, OWN, Block, ProcessHeap
from dmods.jemalloc.find import STATES
from dmods.jemalloc.heap import first_arena
from dmods.kept import kept
from dmods.names import describe_code, module_at
from dmods.ranges import Ranges
from dmods.records import Record
from dmods.stacks import Frame
from dmods.target import Target, Thread
from dmods.threads import LiveStack, ThreadStack, live_stacks, stacks_of

_MOST_TLS = 1 << 20  # bytes below a thread pointer in which its modules' static TLS is looked for
_MOST_MODULES = 4096  # entries of a dtv that are believed
_THREAD_RECORD = 0xC00  # at most what struct pthread takes (2304 bytes in glibc 2.31 to 2.41 on x86-64)


@dataclass(frozen=True)
class Place:
    """``text`` follows "ADDRESS is"; ``brief`` names the place in a list of addresses.

    ``kind``: block, header, top, arena, heap_info, slack (the allocator's memory, but in no chunk); stack, dead stack,
    thread-local, pthread; record; module, mapping. ``holds``: whether a pointer that lies here keeps alive what it
    points to.
    """

    kind: str
    text: str
    brief: str
    holds: bool = True
    tid: Optional[int] = None


class _Running(NamedTuple):
    """A thread with its frames and the live parts of its stacks."""

    thread: Thread
    frames: list[Frame]
    end: str
    live: list[LiveStack]


class Places:
    """Of one process. Stacks are unwound when first needed."""

    def __init__(self, heap: ProcessHeap) -> None:
        self.heap = heap
        self.target = heap.target
        self.free_lists = FreeLists(heap, self.thread_named)

    def at(self, address: int) -> list[Place]:
        """What is there, the most telling first; empty where nothing is mapped. (A block may be a stack, too.)"""
        found = [place for place in (self._of_malloc(address), *self._of_threads(address)) if place is not None]
        return found or list(self._of_recorders(address)) or list(self._of_modules(address))

    def brief(self, address: int) -> str:
        """The place in a few words, as one of a list: the stack that a block is says more than the block."""
        found = self.at(address)
        return ", ".join(place.brief for place in found) or "not mapped"

    # -- the allocator's ------------------------------------------------------------------------------------------

    def _of_malloc(self, address: int) -> Optional[Place]:
        heap = self.heap
        block = heap.block_at(address)
        if block is not None:
            return self._block(block, address)
        return self._arena(address) or self._header(address) or self._rest(address)

    def _block(self, block: Block, address: int) -> Place:
        offset = f"{block.address:#x}+{address - block.address:x}"
        brief = f"{_STATES[block.state]} block {block.address:#x}+{address - block.address:#x}"
        what = self._nature(block)
        text = f"{offset}, {self.state(block)}" + (f": {what}" if what else "")
        return Place("block", text, f"{brief} ({what})" if what else brief, holds=block.state not in (FREE, OWN))

    def _nature(self, block: Block) -> Optional[str]:
        """What an allocated block is, where that is known for certain."""
        if block.state in (FREE, OWN):
            return None
        if block.address in self.heap.caches.tcaches:
            return self.free_lists.tcache(block.address)
        for pointer, tid in self._tls_blocks.items():
            if block.address <= pointer < block.end:  # of a library that was loaded late
                return f"thread-local memory of {self.thread_named(tid)}"
        name = class_of(self.target, self.heap.words.at(block.address) or 0)
        return f"C++ object of class {name}" if name is not None else None

    def state(self, block: Block) -> str:
        """ "allocated from malloc-56", and more where more is known."""
        cache = block.cache
        if block.state == OWN:
            return f"allocated from {cache} by jemalloc for itself"
        if block.state == FREE:
            return f"freed from {cache}: {self.free_lists.holding(block)}"
        own = "an extent" if block.allocator == "jemalloc" else "a mapping"
        where = f" ({own} of its own)" if block.single else ""
        text = f"allocated from {cache}{where}"
        if block.state == DIRECT:
            return f"{text}, leaked directly"
        return f"{text}, leaked indirectly" if block.state == INDIRECT else text

    def _arena(self, address: int) -> Optional[Place]:
        for number, arena in enumerate(self.heap.arenas):
            name = f"arena {arena_name(number)}"
            if arena.address <= address < arena.end:
                offset = address - arena.address
                symbol = describe_code(self.target, address) if arena.main else ""
                also = f" ({symbol})" if "main_arena" in symbol else ""
                text = f"in the malloc_state of {name} ({arena.address:#x}+{offset:x}){also}"
                return Place("arena", text, f"malloc_state of {name}", holds=False)
            size = top_size(self.heap.words, arena)
            if arena.top <= address < arena.top + size:
                text = f"in the top chunk of {name} ({arena.top:#x}+{address - arena.top:x}): {size} bytes, free"
                return Place("top", text, f"top chunk of {name}", holds=False)
            for info in arena.heaps:
                if info.start <= address < first_chunk(arena, info):
                    text = f"in the heap_info of a heap of {name} ({info.start:#x}+{address - info.start:x})"
                    return Place("heap_info", text, f"heap_info of {name}", holds=False)
        return None

    def _header(self, address: int) -> Optional[Place]:
        """In a chunk's header: the words before what malloc returns."""
        if address not in self.heap.layout.owned:
            return None  # jemalloc has no headers
        word = self.heap.words.size
        at = address // word * word
        for user in (at + word, at + 2 * word):
            block = self.heap.block_at(user)
            if block is None or block.address != user:
                continue
            text = f"in the header of the block {user:#x} ({user - address} bytes before it), {self.state(block)}"
            before = self.heap.block_at(at - 1)
            if before is not None:
                text += f"; {_past(address, before)} the block {before.address:#x}, {self.state(before)}"
            return Place("header", text, f"header of the block {user:#x}", holds=False)
        return None

    def _rest(self, address: int) -> Optional[Place]:
        """Malloc's, but in no chunk; or in the midst of its memory and somebody else's."""
        if address not in self.heap.layout.owned:
            return self._of_jemalloc(address)
        name = arena_name(arena_of(self.heap, address))
        for report in self.heap.reports:
            if any(start <= address < end for start, end in report["gaps"]):
                text = f"in memory between two parts of the heap of arena {name}, got from sbrk by somebody else"
                return Place("mapping", text, "somebody else's memory from sbrk")
            if any(start <= address < end for start, end in report["lost"]):
                text = f"in a part of the heap of arena {name} in which no chunk can be made out"
                return Place("slack", text, "damaged heap")
        before = self._block_before(address)
        text = "in memory of the allocator that is in no block"
        if before is not None:
            text += f"; {_past(address, before)} the block {before.address:#x}, {self.state(before)}"
        return Place("slack", text, "the allocator's own memory", holds=False)

    def _of_jemalloc(self, address: int) -> Optional[Place]:
        """jemalloc's, but in no block: between or behind blocks, in pages that are free, or its own records."""
        for order, one in enumerate(self.heap.jemallocs):
            extent = one.extents.at(address)
            if extent is not None:
                _edata, start, size, arena, state, _size_class, slab = extent
                base = start // one.layout.page_size * one.layout.page_size
                what = "a slab" if slab else "an extent"
                used = STATES[state]
                name = f"{what} of arena {arena_name(first_arena(order) + arena)}"
                text = f"in {name}, {base:#x}-{base + size:#x}, {used}, but in no block"
                return Place("slack", text, f"{name}, {used}", holds=False)
            if address in one.base:
                text = f"in memory that {one.name} keeps for its own records"
                return Place("slack", text, "jemalloc's own records", holds=False)
        return None

    def _block_before(self, address: int) -> Optional[Block]:
        """The block that ends at most a page before: an mmapped one's mapping may reach that far."""
        word = self.heap.words.size
        for at in range(address // word * word, max(0, address - 4096), -word):
            block = self.heap.block_at(at)
            if block is not None:
                return block
        return None

    # -- threads' -------------------------------------------------------------------------------------------------

    @cached_property
    def _stacks(self) -> list[ThreadStack]:
        return stacks_of(self.target, list(self.heap.owned))

    @cached_property
    def _dead_ranges(self) -> Ranges:
        return Ranges(self.heap.roots.dead)

    @cached_property
    def _running(self) -> dict[int, _Running]:
        found = {}
        for thread in self.target.threads():
            frames, end = stacks.walk(self.target, thread)
            found[thread.tid] = _Running(thread, frames, end, live_stacks(self.target, thread))
        return found

    def thread_named(self, tid: Optional[int]) -> str:
        """ "thread 123 (worker)"; None: one that has exited."""
        if tid is None:
            return "a thread that has exited"
        name = next((thread.name for thread in self.target.threads() if thread.tid == tid), None)
        return f"thread {tid} ({name})" if name else f"thread {tid}"

    def _of_threads(self, address: int) -> Iterator[Place]:
        for stack in self._stacks:
            record = self._thread_memory(stack, address)
            if record is not None:
                yield record
                return
        for running in self._running.values():
            for live in running.live:
                if live.start <= address < live.end and address not in self._dead_ranges:
                    yield self._frame(running, live, address)
                    return
        for stack in self._stacks:
            if stack.start <= address < stack.end:
                yield self._dead(stack)
                return

    def _frame(self, running: _Running, live: LiveStack, address: int) -> Place:
        name = self.thread_named(running.thread.tid)
        which = "alternate signal stack" if live.note == "alternate signal stack" else "stack"
        inside = [n for n, frame in enumerate(running.frames) if live.start <= frame.sp <= address < live.end]
        last = len(running.frames) - 1
        tid = running.thread.tid
        if not inside:
            where = "below its frames, in the red zone" if running.frames else "whose frames are unknown"
            return Place("stack", f"on the {which} of {name}, {where}", f"{which} of {name}, {where}", tid=tid)
        number = inside[-1]
        function = stacks.describe(self.target, running.frames[number])
        if number == last and running.end not in stacks.WHOLE:
            where = f"at or above frame {number}, {function}, beyond which the stack could not be unwound"
        elif number == last:
            where = f"in or above the outermost frame, {number}, {function}"
        else:
            where = f"in frame {number}, {function}"
        return Place("stack", f"on the {which} of {name}, {where}", f"{which} of {name}, {where}", tid=tid)

    def _dead(self, stack: ThreadStack) -> Place:
        name = self.thread_named(stack.tid)
        if stack.tid is None:
            text = f"on the stack of {name} ({stack.start:#x}-{stack.end:#x}), kept for reuse: its content is dead"
            return Place("dead stack", text, "dead stack of a thread that has exited", holds=False)
        below = f" by {stack.sp:#x}" if stack.sp is not None else ""
        text = f"on the stack of {name}, below its stack pointer{below}: dead"
        return Place("dead stack", text, f"dead stack of {name}, below sp", holds=False, tid=stack.tid)

    def _thread_memory(self, stack: ThreadStack, address: int) -> Optional[Place]:
        """Static TLS and struct pthread, which lie around the thread pointer."""
        if stack.tcb is None:
            return None
        name, exited = self.thread_named(stack.tid), stack.tid is None
        mapping = mapping_of(self.target, stack.tcb)
        limit = mapping.end if mapping is not None else stack.tcb + _THREAD_RECORD
        start = min((p for p in self._dtv(stack) if stack.tcb - _MOST_TLS < p < stack.tcb), default=stack.tcb)
        behind = self.target.arch.name == "aarch64"  # TLS variant I: struct pthread, the thread pointer, TLS
        record = (stack.tcb - _THREAD_RECORD, stack.tcb) if behind else (stack.tcb, stack.tcb + _THREAD_RECORD)
        tls = (stack.tcb, stack.tcb + _MOST_TLS) if behind else (start, stack.tcb)
        if mapping is None or not mapping.start <= address < limit:
            return None
        if record[0] <= address < record[1]:
            text = f"in the struct pthread of {name} ({stack.tcb:#x}{address - stack.tcb:+x})"
            return Place("pthread", text, f"struct pthread of {name}", holds=True, tid=stack.tid)
        if tls[0] <= address < tls[1]:
            text = f"in thread-local memory of {name} (thread pointer {stack.tcb:#x}{address - stack.tcb:+x})"
            return Place("thread-local", text, f"thread-local memory of {name}", holds=not exited, tid=stack.tid)
        return None

    def _dtv(self, stack: ThreadStack) -> list[int]:
        """Where a thread's TLS blocks begin: ``dtv[1..]`` of tcbhead_t, pairs of words; ``dtv[-1]`` is their number."""
        words = self.heap.words
        assert stack.tcb is not None
        dtv = words.at(stack.tcb + (0 if self.target.arch.name == "aarch64" else words.size))
        count = words.at(dtv - 2 * words.size) if dtv else None
        if not dtv or count is None or not 0 < count <= _MOST_MODULES:
            return []
        entries = words.many(dtv + 2 * words.size, 2 * count) or ()
        return [value for value in entries[::2] if value not in (0, words.mask)]

    @cached_property
    def _tls_blocks(self) -> dict[int, Optional[int]]:
        return {pointer: stack.tid for stack in self._stacks if stack.tcb is not None for pointer in self._dtv(stack)}

    # -- the recorders' -------------------------------------------------------------------------------------------

    def _of_recorders(self, address: int) -> Iterator[Place]:
        """Memory of what recorded the allocations: nothing in it keeps anything alive."""
        for recording in self.heap.records.recordings:
            if any(start <= address < end for start, end in recording.own):
                entry = self.heap.records.at(address)
                text, brief = f"in the memory of {recording.name}", f"memory of {recording.name}"
                if isinstance(entry, Record):
                    text = brief = f"the bufctl (allocation record) of the buffer {entry.address:#x}"
                elif entry is not None:
                    text = brief = f"an entry of the transaction log: {entry.address:#x} was {entry.event}"
                yield Place("record", text, brief, holds=False)
                return

    # -- everything else ------------------------------------------------------------------------------------------

    def _of_modules(self, address: int) -> Iterator[Place]:
        mapping = mapping_of(self.target, address)
        if mapping is None:
            return
        extent = f"{mapping.start:#x}-{mapping.end:#x} {mapping.flags}"
        module = module_at(self.target, address)
        if module is not None or mapping.path is not None:
            path = module.path if module is not None else mapping.path
            symbol = self.target.symbol_at(address)
            name = describe_code(self.target, address)
            text = f"{name}, in {path} ({extent})" if symbol else f"in {path} ({extent})"
            brief = name if symbol or module else f"{path}+{address - mapping.start + mapping.offset:#x}"
            yield Place("module" if module is not None else "mapping", text, brief)
            return
        text = f"in anonymous memory {extent}, {address - mapping.start:#x} bytes from its start"
        yield Place("mapping", text, f"anonymous memory {mapping.start:#x}+{address - mapping.start:#x}")


_STATES = {0: "live", FREE: "freed", DIRECT: "leaked", INDIRECT: "leaked", OWN: "jemalloc's own"}


def _past(address: int, block: Block) -> str:
    over = address - block.end
    return "just past the end of" if over == 0 else f"{over} bytes past the end of"


@kept
def of(target: Target) -> Places:
    """The places of the process: made once for each state of it."""
    return Places(heaps.of(target))
