"""The words of a suspect's sentence about its blocks: their kinds, what is in them, and who else leads to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.sizes import human_size
from dmods.graph.owners.heap_owners import Kept, Kind, Owners
from dmods.graph.suspects.block_pools import find_pool
from dmods.graph.suspects.clients import find_client
from dmods.graph.suspects.constant_texts import label_of
from dmods.graph.suspects.sample_texts import blocks_of, sample, sample_of
from dmods.graph.suspects.subject import among_them, named_kinds
from dmods.graph.suspects.suspect import Words
from dmods.graph.types.block_types import functions_in, type_of_block
from dmods.heap.block import Block
from dmods.heap.heap import ProcessHeap

MAINLY = 0.3  # of what a suspect holds: a kind that takes less is not named
KEEPS = "the outermost block that keeps so much alive"
#: Blocks in use: to look for a client among more takes seconds, where `triage` reads no debug information either.
_MOST_SOUGHT = 1_000_000
_DIGITS = 3  # of an estimate


def sizes_in_words(size: int, share: float) -> str:
    """Return the size, with its share of the process's memory."""
    return f"{human_size(size)}, {share:.0%} of the process's memory"


def mostly(kinds: Sequence[Kind], count: int, size: int) -> str:
    """Return the end of a sentence about `count` blocks with `size` bytes: what most of them are."""
    if kinds and kinds[0].bytes >= MAINLY * size:
        return f": {named_kinds(kinds)}"
    return f": {count:,} blocks of many sizes{among_them(kinds, count)}" if count > 1 else ""


def block_in_words(owners: Owners, kept: Kept) -> str:
    """Return a block in words: with its type, or else the functions that it has pointers to."""
    known = type_of_block(owners.heap, kept.address, owners.reads_types)
    if not known and (functions := functions_in(owners.heap, kept.address)):
        known = f"with pointers to {' and '.join(functions)}"
    return f"block of {kept.size:,} bytes{f' ({known})' if known else ''} at {kept.address:#x}"


def inside(owners: Owners, scope: tuple[str, int], kinds: Sequence[Kind]) -> Words:
    """Return what is in the blocks: the name that the program has for them, the places of a pool, or texts."""
    first = kinds[0] if kinds else None
    label, known = "", {}
    if first is not None and not first.is_type and first.size:
        blocks = known[first.example] = blocks_of(owners, scope, first)
        label = label_of(owners.heap, blocks)
        found = pool_in_words(owners.heap, blocks, first.count)
        if found is not None:
            return Words(label + found.public, found.texts)
    return Words(label, sample(owners, scope, kinds, known))


def pool_in_words(heap: ProcessHeap, blocks: Sequence[Block], count: int) -> Optional[Words]:
    """Return what `count` blocks like these are, if they are a pool."""
    pool = find_pool(heap, blocks)
    if pool is None:
        return None
    each = f"{'it' if count == 1 else 'each'} has {pool.each:,} places of {pool.stride:,} bytes"
    total = f", about {_rounded(pool.each * count):,} in all" if count > 1 else ""
    used = f", of which about {pool.used:.0%} hold anything" if pool.used is not None else ""
    return Words(f"; {each}{total}{used}", sample_of(heap, pool.samples))


def _rounded(number: int) -> int:
    """Return an estimate with three digits."""
    unit: int = 10 ** max(0, len(str(number)) - _DIGITS)
    return (number + unit // 2) // unit * unit


def client_in_words(owners: Owners, scope: tuple[str, int], index: Sequence[Kept] = ()) -> Iterator[Words]:
    """Yield who else leads to the blocks of the scope, where one block does. The sentence has named the ``index``."""
    blocks = sum(row[1] for row in owners.heap.marks.engine.sizes())
    sought = owners.reads_types or blocks <= _MOST_SOUGHT
    found = find_client(owners, scope, {kept.address for kept in index}) if sought else None
    if found is None:
        return
    about = "" if found.exact else "about "
    alike = " that look alike" if found.alike else ""
    many = f"{about}{found.count:,} of {found.total:,} blocks of {found.size:,} bytes{alike}"
    yield Words(f"; {many} also hang on one {block_in_words(owners, found.kept)}", f" that has '{found.text}'")
