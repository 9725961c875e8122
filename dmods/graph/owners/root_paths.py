"""The path from a root to a block, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.base.dataclass import dataclass
from dmods.base.progress import bar
from dmods.graph.roots.named_roots import NamedRoots
from dmods.graph.roots.ranked_root import Root
from dmods.graph.types.descriptions import looks_like
from dmods.graph.types.typegraph import find_typegraph
from dmods.heap.block import Block
from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.parts import ITEM, KEY, Parts

MOST_STEPS = 32  # steps of a path that are described
_MOST_WORDS = 16  # words of a block that lead to the next one


@dataclass(frozen=True)
class Step:
    """A step of a path: a word that points into the next block, and that block. ``number`` counts from 1.

    ``holder`` is where the word lies: a root's place, or "+0x18 .next" in the block of the step before. ``at`` is its
    address; None for a register or where the word could not be found again. ``to`` is how far into ``block`` it points.
    ``part`` is what the word is of an object of CPython: see runtimes/python/parts.py.
    """

    number: int
    holder: str
    at: Optional[int]
    block: Block
    to: Optional[int]
    looks_like: str
    part: Optional[str] = None


@dataclass(frozen=True)
class Path:
    """A shortest path. ``root`` is None for a path from a direct leak to a leaked block.

    ``addresses`` are those of its blocks, from the root on. ``steps`` has all steps, or of a long path the first ones
    and the last ones: see ``path_to``.
    """

    root: Optional[Root]
    addresses: Sequence[int]
    steps: list[Step]

    @property
    def python(self) -> Optional[str]:
        """Return the last block as Python says it, "app.store.cache[1000].name"; None without a variable of CPython."""
        root = self.root
        variable = root is not None and (root.kind == "python" or root.where is not None)
        if root is None or not variable:
            return None
        text = root.name
        if root.where is not None:
            text = f"{root.where}: {root.variable}" if root.variable is not None else f"{root.where}, value stack"
        last = len(self.addresses)
        for number, step in enumerate(self.steps[1:], 2):
            if step.part in (KEY, ITEM) and number == last:
                return f"{'a key' if step.part == KEY else 'an item'} of {text}"
            if step.part is None or step.part in (KEY, ITEM) or step.number != number:
                further = last - number + 1
                return f"{text}, {further} {'block' if further == 1 else 'blocks'} further"
            text += step.part
        return text


def path_to(
    roots: NamedRoots,
    address: int,
    only: Optional[int] = None,
    most: int = MOST_STEPS,
    looks: bool = True,
    *,
    owners: Optional[_engine.Owners] = None,
) -> Optional[Path]:
    """Return the shortest path to the block at the address, from the best root or from root number ``only``.

    At most ``most`` of its steps are described, each in about a millisecond: a path through a list has as many as the
    list. With 1 it is the first step, with more the first ones and the last ones. None: no path leads there, or there
    is no block in use. Pointers that the ``owners`` did not follow count last. Without ``looks`` no step says what its
    block looks like: types of debug information take time.
    """
    heap = roots.heap
    with bar("searching for a path", 0) as progress:
        found = heap.marks.engine.path(
            roots.ranges, roots.areas, roots.values, only, address, progress, roots.parts, owners
        )
    if found is None:
        return None
    kind, where, number, packed = found
    addresses = memoryview(packed).cast("Q")  # a list of them would take four times the memory
    python = find_python(roots.target).python
    parts = Parts(python) if python is not None else None
    steps = []
    for place in _described(len(addresses), most):
        block = heap.block_at(addresses[place])
        before = heap.block_at(addresses[place - 1]) if place else None
        if block is None:
            continue
        if before is None:
            holder, at, to = _first(roots, kind, where, number, block)
            steps.append(Step(place + 1, holder, at, block, to, looks_like(heap, block) if looks else ""))
        else:
            steps.append(_inside(roots, place + 1, before, block, parts))
    return Path(roots.root(number) if kind != "leak" else None, addresses, steps)


def _described(count: int, most: int) -> Iterator[int]:
    """Yield the places of ``count`` blocks that are described: all, or a quarter of ``most`` first, the others last."""
    first = count if count <= most else max(most // 4, min(most, 1))
    yield from range(first)
    yield from range(max(count - (most - first), first), count)


def _first(
    roots: NamedRoots, kind: str, where: int, number: int, block: Block
) -> tuple[str, Optional[int], Optional[int]]:
    if kind == "leak":
        return "no root: a direct leak", None, None
    if kind == "value":
        return roots.root(number).name, None, roots.values[where][0] - block.address
    value = roots.heap.words.at(where)
    return roots.place(number, where), where, None if value is None else value - block.address


def _inside(roots: NamedRoots, number: int, before: Block, block: Block, parts: Optional[Parts]) -> Step:
    words, looks = roots.heap.words, looks_like(roots.heap, block)
    # A pointer just past the header counts as one into the block before: the last word may name the end.
    found = _engine.find_pointers(
        roots.target.image(), [(before.address, before.end)], words.size, [(block.address, block.end)], _MOST_WORDS
    )[0]
    if not found:
        return Step(number, "inside", None, block, None, looks)
    at, part = found[0], None
    if parts is not None:
        # The links of CPython's collector may lead to the block as well. They are no part of an object.
        at, part = parts.first(before.address, before.size, found) or (at, None)
    graph = find_typegraph(roots.target)
    field = graph.field(before, at - before.address) if graph is not None else ""
    holder = f"+{at - before.address:#x}" + (f" {field or part}" if field or part else "")
    return Step(number, holder, at, block, (words.at(at) or 0) - block.address, looks, part)
