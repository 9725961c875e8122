"""Find what lies at an address, and describe it in words.

It may be a block or other memory of the allocator, a stack and its frame, thread-local memory, a variable or a mapping.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.allocators.vocabulary import Place
from dmods.base.cached import cached
from dmods.base.class_names import plain_class
from dmods.base.ranges import Ranges
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE, OWN, Block
from dmods.heap.content import class_of
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.index import Index
from dmods.heap.marks import Marks
from dmods.heap.thread_places import ThreadPlaces
from dmods.process.addresses import describe_code, module_at
from dmods.process.mappings import mapping_at
from dmods.records.model import Record
from dmods.runtimes.golang.objects import type_at
from dmods.runtimes.python.describe import dict_key, in_block
from dmods.target import Target

_MAPPING_TAIL = 4096  # an mmapped block may end this far before its mapping


class AddressFinder:
    """Finds what lies at the addresses of one process. ``blocks`` are its heap's, leaks among them or not."""

    def __init__(self, heap: ProcessHeap, blocks: Index | Marks) -> None:
        self.heap, self._blocks = heap, blocks
        self.target = heap.target
        self._threads = ThreadPlaces(heap)

    def at(self, address: int) -> list[Place]:
        """Return the places at the address, the most useful first. Return an empty list where nothing is mapped.

        There may be several places: a program may use a block as a stack.
        """
        allocated = self._in_allocator(address)
        if allocated is not None and allocated.kind == "block" and self._has_own_stacks(address):
            return [allocated]
        places = [place for place in (allocated, *self._threads.at(address)) if place is not None]
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
        block = self._blocks.block_at(address)
        if block is not None:
            return self._block(block, address)
        found = (one.place(self, address) for one in heap.heaps)
        return next((place for place in found if place is not None), None)

    def _block(self, block: Block, address: int) -> Place:
        offset = f"{block.address:#x}+{address - block.address:x}"
        own = f"{block.allocator}'s own"
        state = "garbage" if self._blocks.is_garbage(block) else own if block.state == OWN else _STATES[block.state]
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
        for pointer, tid in self._threads.tls_blocks.items():
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
        if block.state == FREE and block.address in self._blocks.doubtful:
            return f"from {cache}, {self._blocks.doubtful[block.address]}"
        if block.state == FREE:
            return f"freed from {cache}: {self.holding(block)}"
        own = one.single if one is not None and block.single else None
        where = f" ({own} of its own)" if own is not None else ""
        text = f"allocated from {cache}{where}"
        if self._blocks.is_garbage(block):
            return f"{text}, garbage that is not yet collected"
        if block.state == DIRECT:
            return f"{text}, leaked directly"
        return f"{text}, leaked indirectly" if block.state == INDIRECT else text

    def holding(self, block: Block) -> str:
        """Return what holds a free block: "in the tcache of thread 123", "in its slab, of arena je0"."""
        one = self.heap.heap_of(block)
        return one.holding(self, block) if one is not None else "on an unknown list"

    def thread_named(self, tid: Optional[int]) -> str:
        """Return "thread 123 (worker)"; for None, that the thread has exited."""
        return self._threads.named(tid)

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
            block = self._blocks.block_at(at)
            if block is not None:
                return block
        return None

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
    """Return the AddressFinder of the process, made once for each state of the process. It knows what has leaked."""
    heap = find_heap(target)
    return AddressFinder(heap, heap.marks)


@cached
def quick_finder(target: Target) -> AddressFinder:
    """Return the AddressFinder of the process that does not know what has leaked: nothing is marked for it."""
    heap = find_heap(target)
    return AddressFinder(heap, heap.index)
