"""The type of one block, in a few words for a sentence: the same that `whattype` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.class_names import plain_class
from dmods.errors import FaultError
from dmods.graph.types.block_kinds import find_types
from dmods.graph.types.typegraph import ALIKE, find_typegraph
from dmods.heap.block import DIRECT, FREE, Block
from dmods.heap.content import describe_content
from dmods.heap.heap import ProcessHeap
from dmods.heap.leaks.groups import LeakGroup
from dmods.process.addresses import describe_code
from dmods.process.mappings import mapping_at
from dmods.runtimes.golang.objects import type_at
from dmods.runtimes.python.describe import in_block

_MOST_WORDS = 64  # of a block that may point to functions
_LEAKS = 16  # leaked blocks that are looked at
_FUNCTIONS = 2  # that a sentence names


def type_of_block(heap: ProcessHeap, address: int, spread: bool = True) -> str:
    """Return the type of the block in use at the address: "struct request", "raft.MemoryStorage", "dict"; or "".

    Without ``spread``, only the block itself says it: types from debug information and from its holders take time.
    """
    block = heap.block_at(address)
    if block is None or block.state == FREE:
        return ""
    # Go's runtime tells more of its objects than debug information.
    if block.allocator == "Go" and (known := type_at(heap.target, block.address)):
        return known
    graph = find_typegraph(heap.target) if spread else None
    written = graph.name(block) if graph is not None else None
    return plain_class(written) if written else _by_itself(heap, block) or (_by_kind(heap, block) if spread else "")


def common_type(heap: ProcessHeap, blocks: Sequence[Block], spread: bool = True) -> str:
    """Return the type that all of the blocks have, or ""."""
    found = {type_of_block(heap, block.address, spread) for block in blocks}
    return found.pop() if len(found) == 1 else ""


def type_of_leaks(heap: ProcessHeap, group: LeakGroup, spread: bool = True) -> str:
    """Return the type of a group of leaked blocks, "Session" or "probably Session", where some of them agree; or "".

    Of a group without a record, blocks of its size behind the first one count as well.
    """
    rows = heap.marks.engine.blocks([DIRECT], group.first, _LEAKS if group.record is None else 1)
    found = [heap.block_at(row.address) for row in rows if row.size == group.size]
    blocks = [block for block in found if block is not None]
    written = common_type(heap, blocks, spread) if blocks else ""
    graph = find_typegraph(heap.target) if written and spread else None
    claims = [graph.at(block) for block in blocks] if graph is not None else []
    # Nothing says it of the block itself, but live objects of that type look like it.
    guessed = any(claim is not None and claim.evidence == ALIKE for claim in claims)
    return f"probably {written}" if guessed else written


def _by_itself(heap: ProcessHeap, block: Block) -> str:
    python = in_block(heap.target, block.address, block.size)
    if python is not None:
        return python.type
    objects = describe_content(heap, block, most=1).objects
    return objects[0].class_name if objects and not objects[0].offset else ""


def _by_kind(heap: ProcessHeap, block: Block) -> str:
    """Return the type that the block's holder or its allocations say."""
    types = find_types(heap.target)
    (kind,) = types.kinds.kinds_at(0, types.heaps[0].marks.engine, [block.address])
    name: Optional[str] = None
    if kind is not None and (known := types.name(kind)).is_type:
        name = known.text
    return name or ""


def functions_in(heap: ProcessHeap, address: int) -> list[str]:
    """Return the functions to which the words of a block point, at most two: they say what the block is for."""
    block = heap.block_at(address)
    if block is None or block.size > _MOST_WORDS * heap.words.size:
        return []  # a large one is a table, and its first words are chance
    found: dict[str, None] = {}
    for value in _words(heap, block):
        symbol = heap.target.symbol_at(value) if _is_code(heap, value) else None
        if symbol is not None and symbol.address == value:
            found[describe_code(heap.target, value)] = None
    return list(found)[:_FUNCTIONS]


def _is_code(heap: ProcessHeap, value: int) -> bool:
    mapping = mapping_at(heap.target, value)
    return mapping is not None and "x" in mapping.flags


def _words(heap: ProcessHeap, block: Block) -> Iterator[int]:
    """Yield the first words of the block; none if the dump lacks them."""
    size = heap.words.size
    try:
        data = heap.target.read(block.address, min(block.size // size, _MOST_WORDS) * size)
    except FaultError:
        return
    yield from memoryview(data).cast("Q" if size == 8 else "I")
