"""Name the deepest part of a variable that keeps most of its memory: "main: s.by_token", "srv->cache->table".

A part is named as debug information has it. The name begins with the root and goes down through the blocks of which
each alone keeps most of what the one before keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.base.regex import regex
from dmods.errors import FaultError
from dmods.graph.block_types import type_of_block
from dmods.graph.owners import Kept, Line, Owners
from dmods.graph.root_names import outer_part
from dmods.graph.suspect_kinds import DOWN
from dmods.graph.suspect_names import named_place, place_of
from dmods.graph.typegraph import find_typegraph

_MOST_WORDS = 1 << 16  # of a root, or of a block, that are looked at
_STEP = regex(r"[.\[][^.\[]*|[^.\[]+")


@dataclass(frozen=True)
class Part:
    """A part of a variable, as a sentence names it, and the blocks and usable bytes that it keeps alive."""

    name: str
    count: int
    bytes: int


@dataclass(frozen=True)
class _Below:
    """A block that a root or a block keeps alive directly, and the parts whose words lead to it."""

    kept: Kept
    parts: set[str]


def deepest_part(owners: Owners, line: Line, chain: Sequence[Kept]) -> Optional[Part]:
    """Return the deepest part of the line's only root that keeps DOWN of the line, or None where no part is known.

    ``chain`` has the blocks from the outermost down to the accumulation point, each kept alive by the one before alone.
    """
    if len(line.roots) != 1 or not owners.reads_types:
        return None
    least = DOWN * line.bytes
    below = _below_root(owners, line)
    first = part = _main_part(below, least)
    if not part:
        return None
    found, tail = _sum(below, part), ""
    for place, kept in enumerate(chain):
        is_reached = any(each.kept.address == kept.address and part in _prefixes(each.parts) for each in below)
        if not is_reached or _is_one_list(owners, chain[place : place + 2]):
            break
        below = _below_block(owners, kept)
        part = _main_part(below, least)
        if not part:
            break
        found, tail = _sum(below, part), tail + _written(part)
    root = line.roots[0]
    return Part(named_place(owners.names, root, place_of(root, first), tail), *found)


def _is_one_list(owners: Owners, kept: Sequence[Kept]) -> bool:
    """Return whether two blocks are nodes of one list. The word that leads to the first has its name."""
    types = {(each.size, type_of_block(owners.heap, each.address)) for each in kept}
    return len(kept) > 1 and len(types) == 1


def _written(part: str) -> str:
    """Return the part of a block as C writes it behind the pointer to the block."""
    return f"->{part[1:]}" if part.startswith(".") else part


def _below_root(owners: Owners, line: Line) -> list[_Below]:
    """Return the outermost blocks of a line that its root's words lead to; [] where the words have no names."""
    number = owners.roots.number_of(line.roots[0])
    words = owners.names.words(number, _MOST_WORDS) if number is not None else None
    found: dict[int, _Below] = {}
    for word in words or ():
        above = owners.heap.index.owners_above(word.value, 2)
        if word.part and above is not None and above[1] == line.set and len(above[0]) == 1:
            kept = Kept(*above[0][0])
            found.setdefault(kept.address, _Below(kept, set())).parts.add(word.part)
    return list(found.values())


def _below_block(owners: Owners, holder: Kept) -> list[_Below]:
    """Return the blocks that a block keeps alive directly, and that words of it lead to whose names are known."""
    graph, block = find_typegraph(owners.target), owners.heap.block_at(holder.address)
    if graph is None or block is None or graph.at(block) is None:
        return []
    found: dict[int, _Below] = {}
    for at, value in _words(owners, holder):
        above = owners.heap.index.owners_above(value, 2)
        if above is None or len(above[0]) < 2 or above[0][1][0] != holder.address:
            continue
        part = outer_part(graph.field(block, at))
        kept = Kept(*above[0][0])
        if part:
            found.setdefault(kept.address, _Below(kept, set())).parts.add(part)
    return list(found.values())


def _words(owners: Owners, holder: Kept) -> Iterator[tuple[int, int]]:
    """Yield (offset, value) of the words of a block that may be pointers; none if the dump lacks them."""
    size = owners.heap.words.size
    try:
        data = owners.target.read(holder.address, min(holder.size // size, _MOST_WORDS) * size)
    except FaultError:
        return
    for place, value in enumerate(memoryview(data).cast("Q" if size == 8 else "I")):
        if value:
            yield place * size, value


def _main_part(below: Iterable[_Below], least: float) -> str:
    """Return the deepest part whose words lead to blocks that keep at least ``least`` bytes alive, or ""."""
    sums: Counter[str] = Counter()
    for each in below:
        for prefix in _prefixes(each.parts):
            sums[prefix] += each.kept.bytes
    return _longest({part: size for part, size in sums.items() if size >= least})


def _longest(parts: Mapping[str, int]) -> str:
    return max(parts, key=len, default="")


def _prefixes(parts: Iterable[str]) -> list[str]:
    """Return what all of the parts are in: ["srv", "srv.by_token"] of {"srv.by_token.head", "srv.by_token.tail"}."""
    steps = [_STEP.findall(part) for part in parts]
    common: list[str] = []
    for same in zip(*steps):
        if len(set(same)) > 1:
            break
        common.append((common[-1] if common else "") + same[0])
    return common


def _sum(below: Iterable[_Below], part: str) -> tuple[int, int]:
    """Return how many blocks and bytes a part keeps alive."""
    found = [each.kept for each in below if part in _prefixes(each.parts)]
    return sum(kept.count for kept in found), sum(kept.bytes for kept in found)
