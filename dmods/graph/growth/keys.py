"""Keys of owners, holders and arenas that mean the same in several cores, and in cores of other runs.

The numbers of arenas mean nothing in another core: each allocator says what does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.allocators.protocol import Heap
from dmods.graph.owners.heap_owners import MANY, Owners
from dmods.graph.roots.named_roots import LEAKED
from dmods.graph.roots.ranked_root import Root
from dmods.graph.types.block_kinds import Types
from dmods.heap.heap import ProcessHeap

OWN_KEY = (1 << 64) - 2  # the engine's key of the allocator's own blocks
OWN_NAME = "the allocator's own"
LEAKED_NAME = "leaked blocks"
_FROM_ROOT = 1 << 63
_KIND = (1 << 32) - 1
_SET = (1 << 31) - 1
_NAMED = 3  # roots of a set that are named in text


class Labels:
    """Numbers for what stands under one key in all cores, and the names."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self.names: dict[int, str] = {}

    def key(self, identity: object, name: str) -> int:
        """Return the key of what has this identity."""
        number = self._numbers.setdefault(identity, len(self._numbers))
        self.names.setdefault(number, name)
        return number


def set_keys(owners: Owners, labels: Labels) -> list[int]:
    """Return the key of each set of roots. Its roots are named without addresses; threads of one name are one."""
    sets = {number: roots for number, roots, _count, _size in owners.engine.lines()}
    return [
        _key(owners, sets[number], labels) if number in sets else OWN_KEY for number in range(max(sets, default=-1) + 1)
    ]


def _key(owners: Owners, roots: Optional[list[int]], labels: Labels) -> int:
    if roots is None:
        return labels.key(("owner", None), MANY)
    known = [owners.roots.root(each) for each in roots]
    if [root.kind for root in known] == ["allocator"]:
        return OWN_KEY
    if roots == [LEAKED]:
        return labels.key(("owner", "leaked"), LEAKED_NAME)
    names = tuple(sorted({root.key for root in known}, key=lambda name: (_rank(known, name), name)))
    more = len(names) - _NAMED
    return labels.key(("owner", names), ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else ""))


def _rank(roots: list[Root], name: str) -> int:
    """Return 0 for data, which is named first."""
    return min(int(root.kind not in ("variable", "data")) for root in roots if root.key == name)


def holder_label(key: int, types: Types, names: dict[int, str]) -> str:
    """Return "holder -> blocks" for the engine's key: a type or a root, and the type of the blocks that it holds."""
    if key == OWN_KEY:
        return OWN_NAME
    above = key >> 32 & _SET
    if key & _FROM_ROOT and above == OWN_KEY & _SET:
        return OWN_NAME
    holder = names.get(above, "?") if key & _FROM_ROOT else _name(types, above)
    return f"{holder} -> {_name(types, key & _KIND)}"


def _name(types: Types, kind: int) -> str:
    return types.name(kind).text if kind < len(types) else "(not known)"


def arena_keys(heaps: Sequence[ProcessHeap], labels: Labels, aligned: bool) -> list[dict[int, int]]:
    """Return for each heap the key of each arena, by its number there. ``aligned``: addresses may be compared."""
    return [
        {
            arena.number: labels.key(arena.identity, arena.name)
            for one in heap.heaps
            for arena in one.arena_keys(_alike(heaps, one), aligned)
        }
        for heap in heaps
    ]


def _alike(heaps: Sequence[ProcessHeap], wanted: Heap) -> list[list[Heap]]:
    """Return the heaps of the same allocator in each core."""
    return [[one for one in heap.heaps if one.allocator == wanted.allocator] for heap in heaps]
