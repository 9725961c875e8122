"""Name the deepest part of a variable that keeps most of its memory: "main: s.by_token", "srv->cache->table".

A part is named as debug information has it. The name begins with the root and goes down through the blocks of which
each alone keeps most of what the one before keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.base.regex import regex
from dmods.graph.owners.heap_owners import Kept, Line, Owners
from dmods.graph.roots.plain_names import outer_part
from dmods.graph.suspects.accumulating import DOWN
from dmods.graph.suspects.subject import named_place, place_of
from dmods.graph.types.block_types import type_of_block
from dmods.graph.types.typegraph import find_typegraph

_MOST_WORDS = 1 << 16  # of a root, or of a block, that are looked at
_STEP = regex(r"[.\[][^.\[]*|[^.\[]+")
_Row = tuple[int, int, int, int]  # a block, as the engine says what it keeps alive: see Kept


@dataclass(frozen=True)
class Part:
    """A part of a variable, as a sentence names it, and the blocks and usable bytes that it keeps alive."""

    name: str
    count: int
    bytes: int


@dataclass(frozen=True)
class _Main:
    """The deepest part of a root, or of a block, that keeps most alive.

    It has the addresses of the blocks that only its words lead to, and how many blocks and bytes these keep alive.
    """

    name: str
    below: frozenset[int]
    sums: tuple[int, int]


class _Holder:
    """The words of a root, or of a block, and what they keep alive. ``name`` gives the part that a word is in, or "".

    Words are numbered in the order of their addresses. So the words of a part follow each other, and few of the names
    of an array of thousands are needed: that of the word in the middle of the memory, and those where its parts end.
    """

    def __init__(self, rows: Sequence[_Row], name: Callable[[int], str]) -> None:
        self._count, self._name = len(rows), name
        self._last = {row[0]: number for number, row in enumerate(rows)}
        self._first = {rows[number][0]: number for number in range(len(rows) - 1, -1, -1)}
        self._rows = list({row[0]: row for row in rows}.values())

    def main_part(self, least: float) -> Optional[_Main]:
        """Return the deepest part that keeps ``least`` bytes or more, at least half of all; None: no part does."""
        half, seen = sum([row[3] for row in self._rows]) / 2, 0
        for row in self._rows:
            seen += row[3]
            if seen >= half:
                return self._around(self._first[row[0]], least)
        return None

    def _around(self, number: int, least: float) -> Optional[_Main]:
        name = ""
        found = None
        for step in _STEP.findall(self._name(number)):
            name += step
            start, end = self._words_of(name, number)
            inside = [row for row in self._rows if start <= self._first[row[0]] and self._last[row[0]] < end]
            size = sum([row[3] for row in inside])
            if size < least:
                break
            found = _Main(name, frozenset([row[0] for row in inside]), (sum([row[2] for row in inside]), size))
        return found

    def _words_of(self, part: str, number: int) -> tuple[int, int]:
        """Return the first word of a part that has word ``number``, and the one behind its last."""

        def ends(inside: int, outside: int) -> int:  # a word without a name belongs to what is on both sides of it
            while abs(outside - inside) > 1:
                middle = (inside + outside) // 2
                if _is_in(self._name(middle), part):
                    inside = middle
                else:
                    outside = middle
            return inside

        return ends(number, -1), ends(number, self._count) + 1


def deepest_part(owners: Owners, line: Line, chain: Sequence[Kept]) -> Optional[Part]:
    """Return the deepest part of the line's only root that keeps DOWN of the line, or None where no part is known.

    ``chain`` has the blocks from the outermost down to the accumulation point, each kept alive by the one before alone.
    """
    if len(line.roots) != 1 or not owners.reads_types:
        return None
    least = DOWN * line.bytes
    first = part = _below_root(owners, line).main_part(least)
    if first is None:
        return None
    found, tail = first.sums, ""
    for place, kept in enumerate(chain):
        if part is None or kept.address not in part.below or _is_one_list(owners, chain[place : place + 2]):
            break
        part = _below_block(owners, kept).main_part(least)
        if part is not None:
            found, tail = part.sums, tail + _written(part.name)
    root = line.roots[0]
    return Part(named_place(owners.names, root, place_of(root, first.name), tail), *found)


def _is_one_list(owners: Owners, kept: Sequence[Kept]) -> bool:
    """Return whether two blocks are nodes of one list. The word that leads to the first has its name."""
    types = {(each.size, type_of_block(owners.heap, each.address)) for each in kept}
    return len(kept) > 1 and len(types) == 1


def _written(part: str) -> str:
    """Return the part of a block as C writes it behind the pointer to the block."""
    return f"->{part[1:]}" if part.startswith(".") else part


def _below_root(owners: Owners, line: Line) -> _Holder:
    """Return the outermost blocks of a line that its root's words lead to; none where the words have no names."""
    number = owners.roots.number_of(line.roots[0])
    parts: list[str] = []
    rows: list[_Row] = []
    for word in (owners.names.words(number, _MOST_WORDS) if number is not None else None) or ():
        above = owners.engine.above(word.value, 2)
        if word.part and above is not None and above[1] == line.set and len(above[0]) == 1:
            parts.append(word.part)
            rows.append(above[0][0])
    return _Holder(rows, parts.__getitem__)


def _below_block(owners: Owners, holder: Kept) -> _Holder:
    """Return the blocks that a block of a known type keeps alive directly, and that words of it lead to."""
    graph, block = find_typegraph(owners.target), owners.heap.block_at(holder.address)
    if graph is None or block is None or graph.at(block) is None:
        return _Holder([], str)
    words = owners.engine.held_by_words(holder.address, _MOST_WORDS)
    return _Holder([row for _at, row in words], lambda number: outer_part(graph.field(block, words[number][0])))


def _is_in(name: str, part: str) -> bool:
    """Return whether a part of a variable is in another: "srv.by_token.head" is in "srv.by_token" and in "srv"."""
    return not name or name == part or (name.startswith(part) and name[len(part)] in ".[")
