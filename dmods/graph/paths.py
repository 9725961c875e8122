"""The path from a root to a block, step by step."""

from __future__ import annotations

from typing import Optional

from dmods import _engine
from dmods.base.dataclass import dataclass
from dmods.base.progress import Progress
from dmods.graph.looks import looks_like
from dmods.graph.root import Root
from dmods.graph.roots import NamedRoots
from dmods.graph.typegraph import find_typegraph
from dmods.heap.block import Block


@dataclass(frozen=True)
class Step:
    """A step of a path: a word that points into the next block, and that block.

    ``holder`` is where the word lies: a root's place, or "+0x18 .next" in the block of the step before. ``at`` is its
    address; None for a register or where the word could not be found again. ``to`` is how far into ``block`` it points.
    """

    holder: str
    at: Optional[int]
    block: Block
    to: Optional[int]
    looks_like: str


@dataclass(frozen=True)
class Path:
    """A shortest path. ``root`` is None for a path from a direct leak to a leaked block."""

    root: Optional[Root]
    steps: list[Step]


def path_to(roots: NamedRoots, address: int, only: Optional[int] = None) -> Optional[Path]:
    """Return the shortest path to the block at the address, from the best root or from root number ``only``.

    None: no path leads there, or there is no block in use.
    """
    heap = roots.heap
    with Progress("searching for a path") as bar:
        found = heap.index.path(
            roots.ranges, roots.areas, roots.values, only, address, lambda done: bar.update(done, 0), roots.parts
        )
    if found is None:
        return None
    kind, where, number, addresses = found
    blocks = [block for each in addresses if (block := heap.block_at(each)) is not None]
    steps = []
    for before, block in zip([None, *blocks], blocks):
        holder, at, to = _first(roots, kind, where, number, block) if before is None else _inside(roots, before, block)
        steps.append(Step(holder, at, block, to, looks_like(heap, block)))
    return Path(roots.root(number) if kind != "leak" else None, steps)


def _first(
    roots: NamedRoots, kind: str, where: int, number: int, block: Block
) -> tuple[str, Optional[int], Optional[int]]:
    if kind == "leak":
        return "no root: a direct leak", None, None
    if kind == "value":
        return roots.root(number).name, None, roots.values[where][0] - block.address
    value = roots.heap.words.at(where)
    return roots.place(number, where), where, None if value is None else value - block.address


def _inside(roots: NamedRoots, before: Block, block: Block) -> tuple[str, Optional[int], Optional[int]]:
    words = roots.heap.words
    # A pointer just past the header counts as one into the block before: the last word may name the end.
    found = _engine.find_pointers(
        roots.target.image(), [(before.address, before.end)], words.size, [(block.address, block.end)], 1
    )[0]
    if not found:
        return "inside", None, None
    at = found[0]
    graph = find_typegraph(roots.target)
    field = graph.field(before, at - before.address) if graph is not None else ""
    return f"+{at - before.address:#x}" + (f" {field}" if field else ""), at, (words.at(at) or 0) - block.address
