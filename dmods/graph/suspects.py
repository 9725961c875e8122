"""Which few things keep most of the heap alive, as sentences for a ticket.

The rules, in this one place:

* A *single* suspect is a root that alone holds at least SHARE of the live bytes and LEAST bytes; or, where several
  roots lead to it, a block that keeps as much alive.
* A *group* suspect is a kind of block (a type, or one size) with as large a share, less what the single suspects
  hold of it.
* At most MOST are named. A small program has none, whatever the shares are.
* The sentence names the block where the memory comes together: from the outermost block down, while one block keeps at
  least DOWN of what the block above it keeps (the accumulation point of Eclipse's Memory Analyzer).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.base.sizes import counted, human_size
from dmods.graph.owners import ALONE, SHARED, Kept, Kind, Line, Owners
from dmods.graph.paths import path_to

SHARE = 0.2
LEAST = 1 << 20
MOST = 3
DOWN = 0.7
MAINLY = 0.3  # of what a suspect holds: a kind that takes less is not named
_CONSIDERED = 64
_BY = "class"  # kinds: types, and one size where no type is known
_DEEPEST = 16  # blocks on the way down to the accumulation point


@dataclass(frozen=True)
class Suspect:
    """Something that keeps much of the heap alive. ``next`` are commands to type."""

    sentence: str
    bytes: int
    count: int
    share: float
    address: Optional[int]  # the outermost block that keeps most of it; of a group, one of the blocks
    root: Optional[str]
    next: list[str]


def find_suspects(owners: Owners) -> list[Suspect]:
    """Return the suspects, the largest first; [] for a healthy or small heap."""
    limit = max(LEAST, int(SHARE * owners.live))
    singles = sorted(_singles(owners, limit), key=lambda found: -found.bytes)[:MOST]
    explained = sum(found.bytes for found in singles)
    groups: list[Suspect] = []
    if len(singles) < MOST and owners.live - explained >= limit:
        groups = list(_groups(owners, limit, singles))[: MOST - len(singles)]
    return [*singles, *groups]


def _singles(owners: Owners, limit: int) -> Iterator[Suspect]:
    for line in owners.lines:
        if line.how not in (ALONE, SHARED) or line.bytes < limit or line.set is None:
            continue
        top = owners.largest(("set", line.set), _CONSIDERED)
        if line.how == ALONE:
            heavy = top[0] if top and top[0].bytes >= DOWN * line.bytes else None
            yield _suspect(owners, line, line.bytes, line.count or 0, heavy)
            continue
        for kept in top:
            if kept.bytes >= limit:
                yield _suspect(owners, line, kept.bytes, kept.count, kept)


def _accumulation(owners: Owners, kept: Kept) -> Kept:
    """Return the block, at or below `kept`, where the memory comes together."""
    for _step in range(_DEEPEST):
        below = owners.largest(("below", kept.address), 1)
        if not below or below[0].bytes < DOWN * kept.bytes:
            break
        kept = below[0]
    return kept


def _suspect(owners: Owners, line: Line, size: int, count: int, outer: Optional[Kept]) -> Suspect:
    """Return the suspect. `outer` is the outermost block that keeps most of it alive, if there is one."""
    share = size / owners.live
    holder = _holder(owners, line, outer)
    through = ""
    scope = ("set", line.set or 0)
    point = _accumulation(owners, outer) if outer is not None else None
    if point is not None and outer is not None:
        through = f" through one block of {outer.size:,} bytes"
        if point.size != outer.size:  # not the nodes of one list
            through += f", and in it one of {point.size:,} bytes"
        scope = ("below", point.address)
    kinds = [
        kind for kind in owners.kinds(scope, _BY) if point is None or kind.example != point.address or kind.count > 1
    ]
    mostly = f": {count:,} blocks of many sizes" if count > 1 else ""
    if kinds and kinds[0].bytes >= MAINLY * size:
        mostly = f": {_counted(kinds[0])}{_few(kinds[1:], kinds[0].bytes)}"
    if outer is not None and outer.size >= MAINLY * size:
        through, mostly = f", mostly one block of {outer.size:,} bytes", ""  # nothing below it is worth a word
    others = len(line.roots) - 1
    more = f" (and {counted(others, 'other root')})" if line.how == SHARED and others > 0 else ""
    sentence = f"{holder}{more} keeps {share:.0%} of the live heap ({human_size(size)}) alive{through}{mostly}"
    root = line.roots[0].address if line.roots else None
    next_ = [f"retained {root:#x}", "owners"] if root is not None else ["owners"]
    if outer is not None:
        next_ = [f"retained {outer.address:#x}", f"pathto {outer.address:#x}"]
    return Suspect(sentence, size, count, share, outer.address if outer is not None else None, holder, next_)


def _holder(owners: Owners, line: Line, point: Optional[Kept]) -> str:
    """Return the root as a person knows it: "`server+0x30` (redis-server)"."""
    if point is not None:
        path = path_to(owners.roots, point.address)
        if path is not None and path.root is not None:
            place, module = path.steps[0].holder, path.root.module
            return f"`{place.split('`', 1)[1]}` ({module})" if module is not None and "`" in place else f"`{place}`"
    root = line.roots[0] if line.roots else None
    if root is None:
        return "a set of many roots"
    return f"`{root.name.split('`', 1)[1]}` ({root.module})" if root.module and "`" in root.name else f"`{root.name}`"


def _counted(kind: Kind) -> str:
    if kind.is_type:
        return f"{kind.count:,} {kind.name}"
    return f"{counted(kind.count, 'block')} of {kind.size:,} bytes"


def _few(kinds: list[Kind], size: int) -> str:
    """Return the second kind, if it takes at least half as much memory as the first."""
    return f", {_counted(kinds[0])}" if kinds and 2 * kinds[0].bytes >= size else ""


def _groups(owners: Owners, limit: int, singles: list[Suspect]) -> Iterator[Suspect]:
    """Yield the kinds of blocks that take as much, less what the single suspects hold of them."""
    explained: dict[str, int] = {}
    for found in singles:
        if found.address is None:
            return  # what the root holds has no one place, and has been named
        for kind in owners.kinds(("below", found.address), _BY):
            explained[kind.name] = explained.get(kind.name, 0) + kind.bytes
    for kind in owners.kinds(("live", 0), _BY):
        left = kind.bytes - explained.get(kind.name, 0)
        if left >= limit and kind.count > 1:
            share = left / owners.live
            count = f"{kind.count:,} "
            what = kind.name if kind.is_type else f"blocks of {kind.size:,} bytes"
            sentence = f"{count}{what} take {share:.0%} of the live heap ({human_size(left)}), held by no single block"
            yield Suspect(
                sentence,
                left,
                kind.count,
                share,
                kind.example,
                None,
                [f"pathto {kind.example:#x} --all", "owners --by type"],
            )
