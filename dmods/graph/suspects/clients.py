"""Name the one block that leads to most of what an index holds: the client behind a store of messages.

An index of all (the message store of mosquitto) keeps alive what logically one client has. The other way shows it: that
client alone keeps small nodes alive, or an array, that lead to a third of all blocks or more, each to a different one.
Other blocks of its size lead to few. Where no block stands out so, nothing is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.graph.owners.heap_owners import Kept, Owners
from dmods.graph.suspects.entries import text_of

_KINDS = 4  # sizes of blocks that a client may lead to, those with most bytes
_LEAST, _WORTH = 1000, 0.1  # blocks of such a kind, and their part of all bytes
_PART = 3  # a client leads to one in so many of them, or more
_LEVEL, _VISITED = 64, 24  # blocks of a level that are considered, and blocks that are looked into: each in a pass
_MOST_BELOW = 1 << 20  # blocks that a client keeps alive
_MOST_SOURCES = 1 << 17  # of them, whose words are read
_MOST_WORDS = 1 << 19  # that are read in all
_TRIED = 256  # blocks that are read first
_SIBLINGS = 3


@dataclass(frozen=True)
class _Many:
    """Blocks that a client may lead to: those of one size, or of these only those of one shape (a kind's number)."""

    size: int
    count: int
    shape: Optional[int] = None


@dataclass(frozen=True)
class Client:
    """A block, and how many blocks of which size its nodes lead to. ``total`` is how many of that size there are.

    ``alike`` says that only those count that look like each other. ``exact`` says that all nodes were read. ``text``
    is one that the block leads to or has.
    """

    kept: Kept
    count: int
    total: int
    size: int
    alike: bool
    exact: bool
    text: str


@dataclass(frozen=True)
class _Candidate:
    kept: Kept
    level: Sequence[Kept]  # the blocks beside it
    alike: Sequence[Kept]  # blocks directly below it that are like it: the next ones of a list

    @property
    def own(self) -> int:
        """Return how many blocks it keeps alive, without those of the blocks behind it in a list."""
        return self.kept.count - sum(each.count for each in self.alike)

    @property
    def own_bytes(self) -> int:
        """Return their usable bytes."""
        return self.kept.bytes - sum(each.bytes for each in self.alike)


def find_client(owners: Owners, scope: tuple[str, int], index: Collection[int] = ()) -> Optional[Client]:
    """Return the one block that leads to most blocks of a size in the scope, without keeping them alive; or None.

    ``index`` are blocks that are known to lead to them. A block without a text is not named: it may be just another
    index, or in Go a goroutine whose stack has old pointers.
    """
    kinds = _many(owners, scope)
    if not kinds:
        return None
    # Each node, or place of an array, has at least the word that leads on.
    least = min(kind.count for kind in kinds) // _PART * owners.heap.words.size
    waiting: list[tuple[int, int, Kept, Sequence[Kept]]] = []
    _wait(waiting, owners.largest(("live", 0), _LEVEL), least)
    counts: dict[int, list[int]] = {}
    for _visit in range(_VISITED):
        if not waiting:
            break
        *_order, kept, level = heappop(waiting)
        below = owners.largest(("below", kept.address), _LEVEL)
        found = _Candidate(kept, level, [each for each in below if each.size == kept.size])
        beside = [each.count for each in (*level, *found.alike) if each.size == kept.size and each != kept]
        others = counts.setdefault(kept.size, []) + beside
        counts[kept.size].append(found.own)
        if (
            kept.address not in index
            and found.own_bytes >= least
            and 2 * max(others, default=0) < found.own <= _MOST_BELOW
        ):
            client = _client(owners, found, kinds, scope)
            if client is not None:
                return client
        _wait(waiting, below, least)
    return None


def _wait(waiting: list[tuple[int, int, Kept, Sequence[Kept]]], level: Sequence[Kept], least: int) -> None:
    for kept in level:
        if kept.bytes >= least:
            heappush(waiting, (-kept.bytes, kept.address, kept, level))


def _many(owners: Owners, scope: tuple[str, int]) -> list[_Many]:
    """Return the blocks of a size that there are many of; then those of a shape, which tells more where sizes mix."""
    sizes = owners.kinds(scope, "size")
    least = _WORTH * sum(kind.bytes for kind in sizes)
    found = [_Many(kind.size, kind.count) for kind in sizes[:_KINDS] if kind.size]
    known = {many.size for many in found}
    rows = owners.types.kinds.in_scope(0, owners.engine, scope)
    found += [_Many(row.size, row.count, row.kind) for row in rows if row.size in known]
    return [many for many in found if many.count >= _LEAST and many.size * many.count >= least]


def _client(owners: Owners, found: _Candidate, kinds: Sequence[_Many], scope: tuple[str, int]) -> Optional[Client]:
    """Return the candidate as a client, or None where it leads to few of the blocks."""
    engine, sizes = owners.engine, sorted({kind.size for kind in kinds})
    by, without = found.kept.address, [each.address for each in found.alike]
    needed = min(kind.count for kind in kinds) / _PART
    step = max(1, found.own // _TRIED)
    if step > 1:  # the words of an array are read at once
        tried = -(-found.own // step)
        outside = engine.led_to(by, without, step, sizes, tried * _LEVEL)
        if 2 * len(outside) * found.own < needed * tried:
            return None
    step = -(-found.own // _MOST_SOURCES)
    reached = engine.led_to(by, without, step, sizes, _MOST_WORDS)
    targets, found_sizes = [address for address, _size in reached], [size for _address, size in reached]
    shapes = owners.types.kinds.kinds_at(0, owners.heap.marks.engine, targets)
    of_size, of_shape = Counter(found_sizes), Counter(zip(found_sizes, shapes))
    for kind in kinds:
        seen = of_size[kind.size] if kind.shape is None else of_shape[kind.size, kind.shape]
        count = min(seen * step, kind.count)
        if count * _PART < kind.count:
            continue
        rows = zip(targets, found_sizes, shapes)
        alike = [at for at, size, shape in rows if size == kind.size and kind.shape in (None, shape)]
        if not _are_in(owners, alike, scope):
            continue
        others = [each for each in found.level if each.size == found.kept.size and each != found.kept]
        text = text_of(owners, found.kept, None, others[:_SIBLINGS])
        if text is not None:
            return Client(found.kept, count, kind.count, kind.size, kind.shape is not None, step == 1, text)
    return None


def _is_below(owners: Owners, address: int, above: int) -> bool:
    found = owners.engine.above(address, _LEVEL)
    return found is not None and any(kept[0] == above for kept in found[0])


def _are_in(owners: Owners, targets: Sequence[int], scope: tuple[str, int]) -> bool:
    """Return whether the blocks are in the scope, as far as some of them tell."""
    kind, number = scope
    some = targets[:: max(1, len(targets) // _LEVEL)]
    if kind == "set":
        found = [owners.engine.above(each, 1) for each in some]
        return 2 * sum(each is not None and each[1] == number for each in found) > len(some)
    return 2 * sum(_is_below(owners, each, number) for each in some) > len(some)
