"""Describe a block in a few words: its type where one is known, else what its bytes look like."""

from __future__ import annotations

from dmods.graph.types.cxx_holders import EXCEPTION_POOL, exception_pools
from dmods.graph.types.typegraph import find_typegraph
from dmods.heap.block import FREE, Block
from dmods.heap.content import Content, describe_content
from dmods.heap.heap import ProcessHeap
from dmods.runtimes.golang.objects import type_at


def looks_like(heap: ProcessHeap, block: Block) -> str:
    """Return the type of the block, from debug information or Go's runtime, with its text; else what it looks like."""
    return typed(heap, block, describe_content(heap, block, most=1))


def typed(heap: ProcessHeap, block: Block, content: Content) -> str:
    """Return the same for content that was read already."""
    if content.objects or block.state == FREE:
        return content.summary()
    if is_exception_pool(heap, block):
        return EXCEPTION_POOL
    kind = type_at(heap.target, block.address) if block.allocator == "Go" else ""
    if kind:
        return f"{kind}: {content.summary()}" if content.text is not None else kind
    graph = find_typegraph(heap.target)
    name = graph.name(block) if graph is not None else None
    if name is None:
        return content.summary()
    return f"{name}: {content.summary()}" if content.text is not None else name


def is_exception_pool(heap: ProcessHeap, block: Block) -> bool:
    """Return whether the block is libstdc++'s pool for exceptions."""
    return any(pool == block.address for _free, pool, _size in exception_pools(heap.target))
