"""Describe memory of glibc's malloc that is in no block: arenas, top chunks, headers, and what lies between."""

from __future__ import annotations

from typing import Optional

from dmods.allocators.glibc.arenas import first_chunk
from dmods.allocators.glibc.runs import MMAPPED, top_bytes, top_size
from dmods.allocators.glibc.state import State
from dmods.allocators.numbers import arena_name
from dmods.allocators.protocol import Describer
from dmods.allocators.vocabulary import Place
from dmods.process.addresses import describe_code


def place(heap: State, describer: Describer, address: int) -> Optional[Place]:
    """Return what the address is. None: it is not in the memory of an arena or of a chunk."""
    found = _arena(heap, address)
    if found is not None or address not in heap.layout.owned:
        return found
    return _header(heap, describer, address) or _outside(heap, describer, address)


def arena_of(heap: State, address: int) -> Optional[int]:
    """Return the number of the arena whose ``malloc_state`` or memory contains the address, or None."""
    for number, arena in enumerate(heap.all):
        if arena.address <= address < arena.end:
            return number
        if any(info.start <= address < info.start + info.size for info in arena.heaps):
            return number
    runs = (run for run in heap.layout.runs if run[2] != MMAPPED)
    return next((number for start, end, _kind, number, _usable in runs if start <= address < end), None)


def _arena(heap: State, address: int) -> Optional[Place]:
    """Return the arena's own structure, or its top chunk, that holds the address."""
    words, target = heap.process.words, heap.process.target
    for number, arena in enumerate(heap.all):
        name = f"arena {arena_name(number)}"
        if arena.address <= address < arena.end:
            offset = address - arena.address
            symbol = describe_code(target, address) if arena.main else ""
            also = f" ({symbol})" if "main_arena" in symbol else ""
            text = f"in the malloc_state of {name} ({arena.address:#x}+{offset:x}){also}"
            return Place("arena", text, f"malloc_state of {name}")
        size = top_bytes(words, arena)
        if arena.top <= address < arena.top + size:
            text = f"in the top chunk of {name} ({arena.top:#x}+{address - arena.top:x}): {size} bytes, free"
            if top_size(words, arena) != size:
                text += "; its size field is damaged"
            return Place("top", text, f"top chunk of {name}")
        for info in arena.heaps:
            if info.start <= address < first_chunk(arena, info):
                text = f"in the heap_info of a heap of {name} ({info.start:#x}+{address - info.start:x})"
                return Place("heap_info", text, f"heap_info of {name}")
    return None


def _header(heap: State, describer: Describer, address: int) -> Optional[Place]:
    """Return the header of a chunk: the two words before the block."""
    word = heap.process.words.size
    at = address // word * word
    for user in (at + word, at + 2 * word):
        block = heap.process.block_at(user)
        if block is None or block.address != user:
            continue
        text = f"in the header of the block {user:#x} ({user - address} bytes before it), {describer.state(block)}"
        before = heap.process.block_at(at - 1)
        if before is not None:
            text += describer.past(address, before)
        return Place("header", text, f"header of the block {user:#x}")
    return None


def _outside(heap: State, describer: Describer, address: int) -> Place:
    """Return memory inside the allocator's ranges that is in no block."""
    name = arena_name(arena_of(heap, address))
    for report in heap.process.reports:
        if any(start <= address < end for start, end in report["gaps"]):
            text = f"in memory between two parts of the heap of arena {name}: other code took it from sbrk"
            return Place("mapping", text, "memory that other code took from sbrk")
        if any(start <= address < end for start, end in report["lost"]):
            text = f"in a damaged part of the heap of arena {name}: no chunk can be found there"
            return Place("slack", text, "damaged heap")
    text = f"in memory of the allocator that is in no block{describer.behind(address)}"
    return Place("slack", text, "the allocator's own memory")
