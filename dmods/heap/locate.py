"""Find what lies at an address, and describe it in words.

It may be a block or other memory of the allocator, a stack and its frame, thread-local memory, a variable or a mapping.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import NamedTuple, Optional

from dmods.allocators.vocabulary import Place
from dmods.base.cached import cached
from dmods.base.class_names import plain_class
from dmods.base.ranges import Ranges
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE, OWN, Block
from dmods.heap.content import class_of
from dmods.heap.process_heap import ProcessHeap, find_heap
from dmods.process.addresses import describe_code, module_at
from dmods.process.mappings import mapping_at
from dmods.process.threads import LiveStack, ThreadStack, live_stacks, pthread_reach, stacks_of
from dmods.process.tls import dtv_blocks
from dmods.process.unwind import COMPLETE_ENDS, Frame, describe, walk
from dmods.records.model import Record
from dmods.runtimes.golang.objects import type_at
from dmods.runtimes.python.describe import dict_key, in_block
from dmods.target import Target, Thread

_MOST_TLS = 1 << 20  # bytes of static TLS beside a thread pointer, at most
_MOST_UNWOUND = 1000  # threads
_MAPPING_TAIL = 4096  # an mmapped block may end this far before its mapping


class _Running(NamedTuple):
    """A thread with its frames and the live parts of its stacks."""

    thread: Thread
    frames: list[Frame]
    end: str
    live: list[LiveStack]


class AddressFinder:
    """Finds what lies at the addresses of one process. Stacks are unwound when first needed."""

    def __init__(self, heap: ProcessHeap) -> None:
        self.heap = heap
        self.target = heap.target
        self._unwound: dict[tuple[int, Optional[int]], _Running] = {}

    def at(self, address: int) -> list[Place]:
        """Return the places at the address, the most useful first. Return an empty list where nothing is mapped.

        There may be several places: a program may use a block as a stack.
        """
        allocated = self._in_allocator(address)
        if allocated is not None and allocated.kind == "block" and self._has_own_stacks(address):
            return [allocated]
        places = [place for place in (allocated, *self._in_threads(address)) if place is not None]
        return places or list(self._in_recorders(address)) or list(self._in_modules(address))

    def brief(self, address: int) -> str:
        """Return the place in a few words, for a list of addresses."""
        return ", ".join(place.brief for place in self.at(address)) or "not mapped"

    def _has_own_stacks(self, address: int) -> bool:
        """Return whether the memory is of a runtime that knows its stacks: a block there is no stack of it."""
        return any(one.collected and address in Ranges(one.owned) for one in self.heap.heaps)

    # -- the allocator -------------------------------------------------------------------------------------------

    def _in_allocator(self, address: int) -> Optional[Place]:
        heap = self.heap
        block = heap.block_at(address)
        if block is not None:
            return self._block(block, address)
        found = (one.place(self, address) for one in heap.heaps)
        return next((place for place in found if place is not None), None)

    def _block(self, block: Block, address: int) -> Place:
        offset = f"{block.address:#x}+{address - block.address:x}"
        own = f"{block.allocator}'s own"
        state = "garbage" if self.heap.is_garbage(block) else own if block.state == OWN else _STATES[block.state]
        brief = f"{state} block {block.address:#x}+{address - block.address:#x}"
        what = self._nature(block) or self._entry(block, address)
        text = f"{offset}, {self.state(block)}" + (f": {what}" if what else "")
        return Place("block", text, f"{brief} ({what})" if what else brief)

    def _nature(self, block: Block) -> Optional[str]:
        """Return what kind of object an allocated block is, where that is certain: a tcache, TLS, an object
        of C++, Python or Go."""
        one = self.heap.heap_of(block)
        structure = one.structure(self, block) if one is not None else None
        if structure is not None or block.state in (FREE, OWN):
            return structure
        for pointer, tid in self._tls_blocks.items():
            if block.address <= pointer < block.end:  # TLS of a library that was loaded after the start
                return f"thread-local memory of {self.thread_named(tid)}"
        name = class_of(self.target, self.heap.words.at(block.address) or 0)
        if name is not None:
            return f"C++ object of class {plain_class(name)}"
        python = in_block(self.target, block.address, block.size)
        if python is not None:
            return python.phrase
        kind = type_at(self.target, block.address) if block.allocator == "Go" else ""
        return f"Go object of type {kind}" if kind else None

    def _entry(self, block: Block, address: int) -> Optional[str]:
        """Return the key of the value at the address, if the block has the entries of a Python dict."""
        key = dict_key(self.target, address) if block.state in (LIVE, DIRECT, INDIRECT) else None
        return f"in a Python dict, the value of {key}" if key is not None else None

    def state(self, block: Block) -> str:
        """Return the block's state in words: "allocated from malloc-56, leaked directly"."""
        cache, one = block.cache, self.heap.heap_of(block)
        if block.state == OWN:
            return f"allocated from {cache} by {block.allocator} for itself"
        if block.state == FREE and block.address in self.heap.doubtful:
            return f"from {cache}, {self.heap.doubtful[block.address]}"
        if block.state == FREE:
            return f"freed from {cache}: {self.holding(block)}"
        own = one.single if one is not None and block.single else None
        where = f" ({own} of its own)" if own is not None else ""
        text = f"allocated from {cache}{where}"
        if self.heap.is_garbage(block):
            return f"{text}, garbage that is not yet collected"
        if block.state == DIRECT:
            return f"{text}, leaked directly"
        return f"{text}, leaked indirectly" if block.state == INDIRECT else text

    def holding(self, block: Block) -> str:
        """Return what holds a free block: "in the tcache of thread 123", "in its slab, of arena je0"."""
        one = self.heap.heap_of(block)
        return one.holding(self, block) if one is not None else "on an unknown list"

    def past(self, address: int, before: Block) -> str:
        """Return how far past the block's end the address lies, in words that go on a sentence."""
        over = address - before.end
        where = "just past the end of" if over == 0 else f"{over} bytes past the end of"
        return f"; {where} the block {before.address:#x}, {self.state(before)}"

    def behind(self, address: int) -> str:
        """Return the same for the block that ends at most a page before; "" where there is no such block."""
        before = self._block_before(address)
        return self.past(address, before) if before is not None else ""

    def _block_before(self, address: int) -> Optional[Block]:
        """Return the block that ends at most a page before: the mapping of an mmapped block may reach that far."""
        word = self.heap.words.size
        for at in range(address // word * word, max(0, address - _MAPPING_TAIL), -word):
            block = self.heap.block_at(at)
            if block is not None:
                return block
        return None

    # -- threads ---------------------------------------------------------------------------------------------------

    @cached_property
    def _stacks(self) -> list[ThreadStack]:
        return stacks_of(self.target, list(self.heap.owned))

    @cached_property
    def _dead_ranges(self) -> Ranges:
        return Ranges(self.heap.roots.dead)

    def _running(self, address: int) -> Iterator[_Running]:
        """Yield the threads one of whose stacks may hold the address, with their frames.

        Of many threads, only those are unwound whose own stack or stack pointer is near the address.
        """
        threads = self.target.threads()
        if len(threads) > _MOST_UNWOUND:
            mapping = mapping_at(self.target, address)
            own = {stack.tid for stack in self._stacks if stack.start <= address < stack.end}
            sp = self.target.arch.sp
            near = (t for t in threads if t.tid in own or (mapping is not None and t.registers.get(sp, 0) in mapping))
            threads = list(islice(near, _MOST_UNWOUND))
        for thread in threads:
            key = (thread.tid, thread.registers.get(self.target.arch.sp))
            known = self._unwound.get(key)
            if known is None:
                frames, end = walk(self.target, thread)
                known = self._unwound[key] = _Running(thread, frames, end, live_stacks(self.target, thread))
            yield known

    def thread_named(self, tid: Optional[int]) -> str:
        """Return "thread 123 (worker)"; for None, that the thread has exited."""
        if tid is None:
            return "a thread that has exited"
        name = next((thread.name for thread in self.target.threads() if thread.tid == tid), None)
        return f"thread {tid} ({name})" if name else f"thread {tid}"

    def _in_threads(self, address: int) -> Iterator[Place]:
        for stack in self._stacks:
            record = self._thread_memory(stack, address)
            if record is not None:
                yield record
                return
        for running in self._running(address):
            for live in running.live:
                if live.start <= address < live.end and address not in self._dead_ranges:
                    yield self._frame(running, live, address)
                    return
        for stack in self._stacks:
            # A stack that the program made is only a part of its mapping.
            if stack.start <= address < stack.end and (stack.known or address in self._dead_ranges):
                yield self._guard_page(stack, address) or self._dead(stack, address)
                return

    def _frame(self, running: _Running, live: LiveStack, address: int) -> Place:
        name = self.thread_named(running.thread.tid)
        which = "alternate signal stack" if live.note == "alternate signal stack" else "stack"
        inside = [n for n, frame in enumerate(running.frames) if live.start <= frame.sp <= address < live.end]
        last = len(running.frames) - 1
        if not inside:
            where = "below its frames, in the red zone" if running.frames else "whose frames are unknown"
            return Place("stack", f"on the {which} of {name}, {where}", f"{which} of {name}, {where}")
        number = inside[-1]
        function = describe(self.target, running.frames[number])
        if number == last and running.end not in COMPLETE_ENDS:
            where = f"at or above frame {number}, {function}, beyond which the stack could not be unwound"
        elif number == last:
            where = f"in or above the outermost frame, {number}, {function}"
        else:
            where = f"in frame {number}, {function}"
        return Place("stack", f"on the {which} of {name}, {where}", f"{which} of {name}, {where}")

    def _guard_page(self, stack: ThreadStack, address: int) -> Optional[Place]:
        """Return the guard below a stack. It is not writable: gdb's gcore writes it as readable zeros."""
        mapping = mapping_at(self.target, address)
        if mapping is None or "w" in mapping.flags:
            return None
        name = self.thread_named(stack.tid)
        text = f"in the guard page below the stack of {name} ({mapping.start:#x}-{mapping.end:#x})"
        return Place("guard page", text, f"guard page of the stack of {name}")

    def _dead(self, stack: ThreadStack, address: int) -> Place:
        name = self.thread_named(stack.tid)
        if stack.tid is None:
            text = f"on the stack of {name} ({stack.start:#x}-{stack.end:#x}), kept for reuse: its content is dead"
            return Place("dead stack", text, "dead stack of a thread that has exited")
        below = f" by {stack.sp - address:#x}" if stack.sp is not None and stack.sp > address else ""
        text = f"on the stack of {name}, below its stack pointer{below}: dead"
        return Place("dead stack", text, f"dead stack of {name}, below sp")

    def _thread_memory(self, stack: ThreadStack, address: int) -> Optional[Place]:
        """Return the struct pthread or the static TLS that holds the address. Both lie around the thread pointer."""
        if stack.tcb is None:
            return None
        name = self.thread_named(stack.tid)
        mapping = mapping_at(self.target, stack.tcb)
        reach = pthread_reach(self.target, stack.tcb)
        limit = mapping.end if mapping is not None else stack.tcb + reach
        blocks = dtv_blocks(self.heap.words, self.target.arch, stack.tcb)
        start = min((at for at in blocks if stack.tcb - _MOST_TLS < at < stack.tcb), default=stack.tcb)
        behind = not self.target.arch.tcb_is_pthread  # TLS variant I: struct pthread, the thread pointer, TLS
        record = (stack.tcb - reach, stack.tcb) if behind else (stack.tcb, stack.tcb + reach)
        tls = (stack.tcb, stack.tcb + _MOST_TLS) if behind else (start, stack.tcb)
        if mapping is None or not mapping.start <= address < limit:
            return None
        if record[0] <= address < record[1]:
            text = f"in the struct pthread of {name} ({stack.tcb:#x}{address - stack.tcb:+x})"
            return Place("pthread", text, f"struct pthread of {name}")
        if tls[0] <= address < tls[1]:
            text = f"in thread-local memory of {name} (thread pointer {stack.tcb:#x}{address - stack.tcb:+x})"
            return Place("thread-local", text, f"thread-local memory of {name}")
        return None

    @cached_property
    def _tls_blocks(self) -> dict[int, Optional[int]]:
        """Return where the TLS blocks of modules begin, and the thread that each belongs to."""
        words, arch = self.heap.words, self.target.arch
        return {
            pointer: stack.tid
            for stack in self._stacks
            if stack.tcb is not None
            for pointer in dtv_blocks(words, arch, stack.tcb)
        }

    # -- the recorders --------------------------------------------------------------------------------------------

    def _in_recorders(self, address: int) -> Iterator[Place]:
        """Yield the memory of the recorder of allocations."""
        for recording in self.heap.records.recordings:
            if any(start <= address < end for start, end in recording.own):
                entry = self.heap.records.at(address)
                text, brief = f"in the memory of {recording.name}", f"memory of {recording.name}"
                if isinstance(entry, Record):
                    text = brief = f"the bufctl (allocation record) of the buffer {entry.address:#x}"
                elif entry is not None:
                    text = brief = f"an entry of the transaction log: {entry.address:#x} was {entry.event}"
                yield Place("record", text, brief)
                return

    # -- everything else ------------------------------------------------------------------------------------------

    def _in_modules(self, address: int) -> Iterator[Place]:
        mapping = mapping_at(self.target, address)
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


_STATES = {LIVE: "live", FREE: "freed", DIRECT: "leaked", INDIRECT: "leaked"}


@cached
def address_finder(target: Target) -> AddressFinder:
    """Return the AddressFinder of the process, made once for each state of the process."""
    return AddressFinder(find_heap(target))
