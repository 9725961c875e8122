"""The memory that each part of a root alone keeps alive.

Each word of the root that points into a block becomes a root of its own. So the engine answers the same question for
words as for roots. The words of one member of a variable stay together, and so do words without a name that the same
structure leads back to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.graph.owners.heap_owners import Line, Owners, joined, owners_by
from dmods.graph.roots.plain_names import Word
from dmods.graph.roots.unnamed_variables import Joiner

_MOST_WORDS = 1 << 16  # of a root that is split


@dataclass(frozen=True)
class Part:
    """The memory that words of a root keep alive. Several parts share it where ``shared`` says so.

    ``address`` is the first word, None where there are several parts.
    """

    name: str
    address: Optional[int]
    shared: bool
    count: int
    bytes: int


def split(owners: Owners, number: int, line: Line) -> list[Part]:
    """Return the parts of root number `number`, most bytes first; [] for a root that cannot be divided.

    ``line`` is what the root alone keeps alive: the sums of the parts are its sums.
    """
    words = owners.names.words(number, _MOST_WORDS) or []
    groups = _groups(owners, words)
    if len(groups) < 2:
        return []
    first = len(owners.roots.all_roots())
    areas = _areas(owners, number, {word.address: first + n for n, group in enumerate(groups) for word in group})
    homes = list(owners.roots.homes)
    for root, arena, is_variable in owners.roots.homes:
        if root == number:
            homes += [(first + n, arena, is_variable) for n in range(len(groups))]
    names = [_name(owners, number, group) for group in groups]
    parts = []
    for _set, roots, count, size_ in owners_by(owners, areas, homes).lines():
        places = [root - first for root in roots or ()]
        if not places or min(places) < 0 or max(places) >= len(groups):
            continue
        alone = groups[places[0]][0].address if len(places) == 1 else None
        name = joined([names[place] for place in places], len(places))
        parts.append(Part(name, alone, len(places) > 1, count, size_))
    count, left = (line.count or 0) - sum(part.count for part in parts), line.bytes - sum(part.bytes for part in parts)
    if count > 0:
        parts.append(Part("many of its words", None, True, count, left))
    return sorted(parts, key=lambda part: (-part.bytes, part.name))


def _areas(owners: Owners, number: int, roots: Mapping[int, int]) -> list[tuple[int, int, int, int]]:
    """Return the memory of all roots, where each of some words of root number `number` has a root of its own."""
    areas, size, words = [], owners.heap.words.size, sorted(roots)
    for start, end, root, rank in owners.roots.areas:
        if root != number:
            areas.append((start, end, root, rank))
            continue
        done = start
        for at in words[bisect_left(words, start) : bisect_left(words, end)]:
            if done < at:
                areas.append((done, at, root, rank))
            done = min(at + size, end)
            areas.append((at, done, roots[at], rank))
        if done < end:
            areas.append((done, end, root, rank))
    return areas


def _name(owners: Owners, number: int, group: Sequence[Word]) -> str:
    root, word = owners.roots.root(number), group[0]
    if word.part or root.address is None:
        return word.part or f"{word.address:#x}"
    return f"+{word.address - root.address:#x}"


def _groups(owners: Owners, words: Sequence[Word]) -> list[list[Word]]:
    """Return the words by the part of the variable that they are in. Words without a name are joined by structure."""
    named: dict[str, list[Word]] = {}
    unnamed: dict[int, Word] = {}
    for word in words:
        if word.part:
            named.setdefault(word.part, []).append(word)
        else:
            unnamed[word.address] = word
    groups = Joiner(owners.heap).groups(list(unnamed))
    return [*named.values(), *([unnamed[address] for address in group] for group in groups)]
