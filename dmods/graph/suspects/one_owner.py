"""Make the suspect of one owner: a root, a part of its variable, or a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.base.sizes import counted, human_size
from dmods.errors import FaultError
from dmods.finding import Evidence
from dmods.graph.owners.heap_owners import ALONE, SHARED, Kept, Kind, Line, Owners
from dmods.graph.roots.named_roots import CYCLES
from dmods.graph.suspects.accumulating import DOWN, is_few
from dmods.graph.suspects.deepest_part import deepest_part
from dmods.graph.suspects.entries import entry_of
from dmods.graph.suspects.process_share import ProcessMemory
from dmods.graph.suspects.sample_texts import runs_in, sample
from dmods.graph.suspects.sentence import (
    KEEPS,
    MAINLY,
    block_in_words,
    client_in_words,
    inside,
    mostly,
    pool_in_words,
    sizes_in_words,
)
from dmods.graph.suspects.subject import holder, holders, named_place, with_parts
from dmods.graph.suspects.suspect import RESERVED, Suspect, Words, suspect
from dmods.heap.block import Block
from dmods.target import Target

CONSIDERED = 64  # outermost blocks of an owner
BY = "class"  # kinds: types, and one size where no type is known
_MANY_ZEROS = 0.5  # of a block: so many are worth a word
_NEARLY = 0.99  # of what a variable holds: a part that keeps less has its own number
_DEEPEST = 16  # blocks on the way down to the accumulation point
_PIECE = 1 << 12
_PIECES = 256  # of a block that are looked at, at equal distances: a large block takes no longer than a small one


@dataclass(frozen=True)
class _Named:
    """Who keeps so many blocks and bytes alive. ``rest`` says what the whole variable holds, where that is more."""

    name: str
    count: int
    bytes: int
    rest: str = ""


@dataclass(frozen=True)
class _Way:
    """The way through the outermost block to the one where memory comes together, in words."""

    outer: Kept
    point: Kept
    words: str
    zeros: Optional[float] = None
    is_all: bool = False  # the outermost block itself has most bytes: nothing below it is worth a word


def single(owners: Owners, memory: ProcessMemory, line: Line, kept: Kept, outer: Optional[Kept]) -> Suspect:
    """Return the suspect: so much as `kept` says. `outer` is the outermost block that keeps most of it alive."""
    held = ("set", line.set or 0)
    whole = held if line.how == ALONE or outer is None else ("below", kept.address)
    together = line.how == SHARED and outer is None
    chain = _accumulation(owners, outer) if outer is not None else []
    named = _named(owners, line, kept, outer, chain)
    way = _way(owners, chain, kept.bytes) if chain else None
    share, of_process = named.bytes / memory.in_use, memory.share(named.bytes, memory.untouched_in(owners, whole))
    others = len(line.roots) - 1
    more = f" (and {counted(others, 'other root')})" if line.how == SHARED and others > 0 and not together else ""
    sentence = (
        f"{named.name}{more} {'keep' if together else 'keeps'} {share:.0%} of the heap in use "
        f"({sizes_in_words(named.bytes, of_process)}) alive{named.rest}{way.words if way is not None else ''}"
    )
    behind = _behind(owners, held, kept, way, chain)
    evidence = []
    if way is not None:
        evidence = [Evidence(way.outer.address, KEEPS), Evidence(way.point.address, "there the memory comes together")]
    return suspect(
        "held",
        sentence,
        named.bytes,
        _next(line, way),
        count=named.count,
        shares=(share, of_process),
        evidence=evidence,
        root=named.name,
        zeros=way.zeros if way is not None else None,
        few=is_few(owners, whole, kept.bytes),
        scope=held if outer is None else ("below", outer.address),
        behind=behind,
    )


def _named(owners: Owners, line: Line, kept: Kept, outer: Optional[Kept], chain: Sequence[Kept]) -> _Named:
    if line.how == SHARED and outer is None:
        return _Named(holders(owners, line), kept.count, kept.bytes)
    part = deepest_part(owners, line, chain) if line.how == ALONE else None
    if part is None:
        outermost = [outer] if outer is not None else owners.largest(("set", line.set or 0), CONSIDERED)
        return _Named(holder(owners, line, outermost), kept.count, kept.bytes)
    if part.bytes >= _NEARLY * kept.bytes:
        return _Named(part.name, kept.count, kept.bytes)
    root = line.roots[0]
    rest = f", most of what {named_place(owners.names, root, root.name)} holds ({human_size(kept.bytes)})"
    return _Named(part.name, part.count, part.bytes, rest)


def _behind(
    owners: Owners, held: tuple[str, int], kept: Kept, way: Optional[_Way], chain: Sequence[Kept]
) -> list[Words]:
    """Return the end of the sentence: what the blocks are, and what is in them."""
    if way is not None and way.is_all:
        block = owners.heap.block_at(way.outer.address)
        if block is None:
            return []
        pool = pool_in_words(owners.heap, [block], 1)
        texts = runs_in(owners.heap, [(block.address, block.end)]) if pool is None else ""
        if pool is None and not texts:  # a table, whose keys are blocks of their own
            scope = ("below", way.outer.address)
            texts = sample(owners, scope, _kinds(owners, scope, way), named=0)
        return [pool or Words("", texts)]
    scope = held if way is None else ("below", way.point.address)
    kinds = _kinds(owners, scope, way)
    said = mostly(kinds, kept.count, kept.bytes)
    found = [Words(said), inside(owners, scope, kinds)] if said else []
    entry = entry_of(owners, held, chain)
    if entry is not None and 2 * entry.bytes >= kept.bytes:
        part = f"{entry.bytes / kept.bytes:.0%}"
        found.append(Words("", f", {part} of it under {entry.words}"))
    return [*found, *client_in_words(owners, held, chain)]


def _kinds(owners: Owners, scope: tuple[str, int], way: Optional[_Way]) -> list[Kind]:
    point = way.point.address if way is not None else None
    return with_parts([kind for kind in owners.kinds(scope, BY) if kind.example != point or kind.count > 1])


def _way(owners: Owners, chain: Sequence[Kept], size: int) -> _Way:
    outer, point = chain[0], chain[-1]
    if outer.size >= MAINLY * size:
        block = owners.heap.block_at(outer.address)
        zeros = _zero_part(owners.target, block) if block is not None and outer.size >= DOWN * size else None
        return _Way(outer, outer, f", mostly one {block_in_words(owners, outer)}{_empty(zeros)}", zeros, True)
    words = f" through one {block_in_words(owners, outer)}"
    if all(kept.size == outer.size for kept in chain):  # the nodes of one list
        return _Way(outer, outer, words)
    return _Way(outer, point, f"{words}, and in it one {block_in_words(owners, point)}")


def _accumulation(owners: Owners, kept: Kept) -> list[Kept]:
    """Return the blocks from `kept` down to the one where the memory comes together."""
    chain = [kept]
    for _step in range(_DEEPEST):
        below = owners.largest(("below", chain[-1].address), 1)
        if not below or below[0].bytes < DOWN * chain[-1].bytes:
            break
        chain.append(below[0])
    return chain


def _next(line: Line, way: Optional[_Way]) -> list[str]:
    """Return the commands to type next."""
    if way is not None:
        return [f"retained {way.outer.address:#x}", f"pathto {way.point.address:#x}"]
    if CYCLES in line.roots:
        return ["pyobjects --cycles", "owners"]
    root = line.roots[0].address if line.roots else None
    return [f"retained {root:#x}", "owners"] if root is not None else ["owners"]


def _empty(zeros: Optional[float]) -> str:
    if zeros is None or zeros < _MANY_ZEROS:
        return ""
    return ", which is nearly all zeros" if zeros >= RESERVED else f", of which about {zeros:.0%} is zeros"


def _zero_part(target: Target, block: Block) -> Optional[float]:
    """Return which part of a block's pieces of 4 KB is all zeros, from 0 to 1; None where too few are in the dump."""
    whole = block.size // _PIECE
    looked_at = min(whole, _PIECES)
    found = zeros = 0
    for number in range(looked_at):
        try:
            data = target.read(block.address + whole * number // looked_at * _PIECE, _PIECE)
        except FaultError:
            continue
        found += 1
        zeros += not any(data)
    return zeros / found if 2 * found > looked_at else None
