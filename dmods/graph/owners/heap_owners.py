"""Who holds the heap: every byte of it has exactly one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Optional

from dmods import _engine
from dmods.allocators.block import block_of_row
from dmods.base.cached import cached
from dmods.base.dataclass import dataclass
from dmods.base.progress import bar
from dmods.graph.roots.named_roots import LEAKED, NamedRoots, named_roots
from dmods.graph.roots.plain_names import RootNames, one_part
from dmods.graph.roots.ranked_root import Root
from dmods.graph.types.block_kinds import Types, find_types
from dmods.graph.types.type_name import TypeName, type_name
from dmods.graph.types.typegraph import TypeGraph, find_typegraph
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.ledger import find_ledger
from dmods.heap.no_heap import no_heap
from dmods.target import Target

ALONE, SHARED, LEAKS, FREE_, TOP_, OWN_, NEVER = "alone", "shared", "leaked", "free", "top", "own", "untouched"
MANY = "many roots"
_NAMED = 3  # roots of a set that are named in text
_BATCH = 65536
_WORTH = 100  # the owners are found again if neighbours that are one variable hold one in so many bytes


@dataclass(frozen=True)
class Kept:
    """A block, and what it keeps alive: blocks and usable bytes, itself included."""

    address: int
    size: int
    count: int
    bytes: int


@dataclass(frozen=True)
class Line:
    """Memory with one owner.

    ``how`` is "alone" (one root), "shared" (several), "leaked", "free" (in blocks), "top" (free and in no block: at the
    top of arenas, or whole pages), "own" (the allocator's) or "untouched" (free pages that were never touched).
    ``roots`` are the owners, the best known first; empty where it has no owner or too many. ``set`` is the engine's
    number of the set of roots.
    """

    name: str
    how: str
    count: Optional[int]
    bytes: int
    roots: tuple[Root, ...] = ()
    set: Optional[int] = None


@dataclass(frozen=True)
class Kind:
    """Blocks of one kind. ``name`` is a type, a shape, or the cache of their size: "malloc-56"."""

    name: str
    is_type: bool
    size: Optional[int]  # None: they have several sizes
    count: int
    bytes: int
    example: int


class Owners:
    """The owners of the blocks of one heap."""

    def __init__(self, heap: ProcessHeap, all_edges: bool = False) -> None:
        self.heap = heap
        self.target = heap.target
        self.reads_types = True
        self.roots: NamedRoots = named_roots(heap.target)
        self.engine = self._found(all_edges)
        self._rows = self._rows_by_number()
        if pairs := self._of_one_structure():
            self.roots.join(pairs)
            self.engine = self._found(all_edges)
            self._rows = self._rows_by_number()
        self.names = RootNames(self.roots)
        self.set_aside = self.engine.set_aside
        self._many_numbers = self.engine.many_roots
        self._kinds: dict[tuple[tuple[str, int], str, bool], list[Kind]] = {}
        self._caches: dict[tuple[int, int], str] = {}  # names by size, and by the engine's number of the allocator

    def _found(self, all_edges: bool) -> _engine.Owners:
        roots = self.roots
        with bar("finding owners", 0) as progress:
            return self.heap.marks.engine.find_owners(
                roots.ranges,
                roots.areas,
                roots.values,
                roots.homes,
                roots.leaves,
                all_edges,
                progress,
                roots.parts,
                roots.selves,
                roots.names,
            )

    def _rows_by_number(self) -> dict[int, tuple[int, Optional[list[int]], int, int]]:
        """Return what each set of roots holds, by its number."""
        return {row[0]: row for row in self.engine.lines()}

    def _of_one_structure(self) -> list[tuple[int, int]]:
        """Return pairs of neighbouring words without a name, each of which leads to the block behind the other.

        They are one variable, such as the head and the tail of a list. See also `unnamed`. [] if they hold little.
        """
        pairs: list[tuple[int, int]] = []
        held: dict[int, int] = {}
        for first, second, address in self.roots.neighbours():
            sets = {self._set_of_word(at) for at in (address - self.heap.words.size, address)}
            _number, roots, _count, size = self._rows.get(min(sets), (0, None, 0, 0))
            if len(sets) == 1 and roots is not None and first in roots and second in roots:
                pairs.append((first, second))
                held[min(sets)] = size
        return pairs if sum(held.values()) * _WORTH >= sum(row[3] for row in self._rows.values()) else []

    def _set_of_word(self, at: int) -> int:
        """Return the number of the set of roots that lead to the block behind a word; -1: no block is there."""
        value = self.heap.words.at(at)
        above = self.engine.above(value, 1) if value is not None else None
        return above[1] if above is not None else -1

    @property
    def notes(self) -> list[str]:
        """Return what is uncertain about the roots and the heap."""
        notes = [*self.heap.notes, *self.heap.roots.notes, *self.roots.notes]
        return notes if self.heap.found else [no_heap(self.heap.target), *notes]

    # -- lines ----------------------------------------------------------------------------------------------------

    @cached_property
    def lines(self) -> list[Line]:
        """Return who holds what, most first; then what is leaked, free and the allocator's own.

        They sum to ``total``.
        """
        held = []
        for row in self._rows.values():
            line = self._line(*row)
            if line.how not in (LEAKS, OWN_):
                held.append(line)
        held.sort(key=lambda line: (-line.bytes, line.name))
        leaks, ledger = self.heap.leaks(), find_ledger(self.target)
        rest = [
            Line("leaked", LEAKS, leaks.direct_count + leaks.indirect_count, leaks.direct_bytes + leaks.indirect_bytes),
            Line(
                "free and cached",
                FREE_,
                sum(row[2] for row in self._sizes),
                sum(row[0] * row[2] for row in self._sizes),
            ),
        ]
        pages = ledger.free_pages
        left = max(0, ledger.heap - pages.bytes - sum(line.bytes for line in (*held, *rest)))
        own = Line("the allocator's own: headers, caches, padding", OWN_, None, left)
        if pages.touched:
            places = sorted({one.free_place for one in self.heap.heaps if one.free_memory()})
            rest.append(Line(" or ".join(places), TOP_, None, pages.touched))
        if pages.untouched:
            rest.append(Line("free, and never touched", NEVER, None, pages.untouched))
        return [*held, *rest, own]

    def sum_of(self, *how: str) -> int:
        """Return the bytes of all lines that are held in one of these ways."""
        return sum(line.bytes for line in self.lines if line.how in how)

    @property
    def total(self) -> int:
        """Return the bytes of the heap: all that the lines sum to."""
        return sum(line.bytes for line in self.lines)

    @property
    def live(self) -> int:
        """Return the usable bytes that roots hold."""
        return self.sum_of(ALONE, SHARED)

    @cached_property
    def missing(self) -> int:
        """Return how many usable bytes in use have no owner. It is 0, or the engine has a defect."""
        used = sum(row[0] * (row[1] + row[3]) for row in self._sizes)
        return used - sum(row[3] for row in self._rows.values())

    @cached_property
    def _sizes(self) -> Sequence[tuple[int, int, int, int, int]]:
        return self.heap.marks.engine.sizes()

    def _is_own(self, roots: Optional[list[int]]) -> bool:
        return roots is not None and [self.roots.root(each).kind for each in roots] == ["allocator"]

    def _line(self, number: int, roots: Optional[list[int]], count: int, size: int) -> Line:
        if roots is None:
            return Line(MANY, SHARED, count, size, set=number)
        known = self._known(roots)
        if roots == [LEAKED]:
            return Line("leaked", LEAKS, count, size, set=number)
        if self._is_own(roots):
            return Line("the allocator's own", OWN_, count, size, known, number)
        return Line(self._joined(known), ALONE if len(known) == 1 else SHARED, count, size, known, number)

    def _known(self, roots: Sequence[int]) -> tuple[Root, ...]:
        return tuple(sorted((self.roots.root(each) for each in roots), key=_by_evidence))

    def leading_to(self, line: Line) -> tuple[Root, ...]:
        """Return the roots that lead to the memory of a line, also where they are too many to be listed for a block.

        The blocks of such a line may have different owners. These are the owners of any of them.
        """
        return self._many if line.how == SHARED and not line.roots else line.roots

    @cached_property
    def _many(self) -> tuple[Root, ...]:
        return self._known(self._many_numbers)

    def _joined(self, roots: Sequence[Root]) -> str:
        return joined([self.names.name(root) for root in roots[:_NAMED]], len(roots))

    def full_name(self, line: Line) -> str:
        """Return the line's name with the threads and the frames of its owners."""
        roots = self.leading_to(line)
        if not roots:
            return line.name
        names = joined([root.name for root in roots[:_NAMED]], len(roots))
        return names if line.roots else f"{line.name}: {names}"

    def name_of(self, line: Line) -> str:
        """Return the line's name. It has the member of the variable that all of the memory hangs on."""
        if not line.roots and (roots := self.leading_to(line)):
            return f"{line.name}: {self._joined(roots)}"
        number = self.roots.number_of(line.roots[0]) if line.how == ALONE and line.roots else None
        words = self.names.words(number) if number is not None else None
        if not words:
            return line.name
        own = [word for word in words if (held := self.engine.above(word.value, 1)) and held[1] == line.set]
        return self.names.name(line.roots[0], one_part(own))

    def line_of(self, number: int) -> Line:
        """Return who a set of roots is. Its count and bytes are those of all that it holds."""
        return self._line(*self._rows[number])

    def set_of_root(self, root: int) -> Optional[int]:
        """Return the number of the set that has only this root, or None where the root holds nothing alone."""
        return next((number for number, row in self._rows.items() if row[1] == [root]), None)

    # -- blocks ---------------------------------------------------------------------------------------------------

    def above(self, address: int, most: int = 1) -> Optional[tuple[list[Kept], Line]]:
        """Return the block at the address and those that alone keep it alive, from the block up; and who holds them.

        The chain is cut at ``most`` blocks: each node of a list keeps the rest of the list alive.
        """
        found = self.engine.above(address, most)
        return None if found is None else ([Kept(*row) for row in found[0]], self.line_of(found[1]))

    def largest(self, scope: tuple[str, int], most: int) -> list[Kept]:
        """Return the outermost blocks of the scope that keep most alive."""
        return [Kept(*row) for row in self.engine.largest(scope, most)]

    def addresses(self, scope: tuple[str, int]) -> Iterator[int]:
        """Yield the addresses of the blocks in the scope."""
        start = 0
        while batch := self.engine.addresses_in(scope, start, _BATCH):
            yield from batch
            start = batch[-1] + 1

    @contextmanager
    def without_debug_information(self) -> Iterator[None]:
        """Leave the types of debug information out of kinds: to spread them takes longer than to find the owners."""
        before, self.reads_types = self.reads_types, False
        try:
            yield
        finally:
            self.reads_types = before

    @cached_property
    def types(self) -> Types:
        """Return the types of the blocks."""
        return find_types(self.target)

    def kinds(self, scope: tuple[str, int], by: str = "type") -> list[Kind]:
        """Return the kinds of the blocks in the scope, most bytes first.

        ``by`` is "type" (types, and shapes), "class" (types, and the sizes of blocks without one) or "size".
        """
        graph = find_typegraph(self.target) if self.reads_types and by != "size" and not self._is_mostly_go else None
        key = (scope, by, graph is None)
        if key not in self._kinds:
            found: dict[tuple[str, bool], Kind] = {}
            for one in self._each_kind(scope, by, graph):
                found[one.name, one.is_type] = _joined_kinds(found.get((one.name, one.is_type)), one)
            self._kinds[key] = sorted(found.values(), key=lambda kind: (-kind.bytes, kind.name))
        return list(self._kinds[key])

    def _each_kind(self, scope: tuple[str, int], by: str, graph: Optional[TypeGraph]) -> Iterator[Kind]:
        """Yield the kinds of the blocks in the scope. Several may have one name."""
        if by == "size":
            for _first, size, count, at in self.engine.alike(scope, []):
                yield Kind(self._cache(size, at), False, size, count, size * count, at)
        elif graph is not None:
            for number, written, size, count, at in graph.engine.in_scope(self.types.kinds, 0, self.engine, scope):
                given = type_name(written, "", "likely") if written is not None else None
                name = self._kind_name(number, given, by, size, at)
                yield Kind(*name, size, count, size * count, at)
        else:
            for row in self.types.kinds.in_scope(0, self.engine, scope):
                name = self._kind_name(row.kind, None, by, row.size, row.example)
                yield Kind(*name, row.size, row.count, row.bytes, row.example)

    def _kind_name(
        self, number: Optional[int], given: Optional[TypeName], by: str, size: int, example: int
    ) -> tuple[str, bool]:
        """Return the name of blocks, and whether it is a type: the one ``given`` for them, or that of their kind."""
        known = self.types.type(number) if number is not None else given
        if known is not None:
            return known.text, True
        if by == "type" and number is not None:
            return self.types.name(number).text, False
        return self._cache(size, example), False

    @cached_property
    def _is_mostly_go(self) -> bool:
        """Return whether most blocks are objects of Go. Go's runtime tells more of them than debug information."""
        collected = sum(heap.slots.usable_bytes for heap in self.heap.heaps if heap.name == "Go")
        return 2 * collected > self.heap.bytes

    def _cache(self, size: int, example: int) -> str:
        row = self.heap.index.engine.find(example)
        if row is None:
            return f"malloc-{size}"
        key = size, row.allocator
        if key not in self._caches:
            self._caches[key] = block_of_row(row).cache
        return self._caches[key]


def _joined_kinds(before: Optional[Kind], kind: Kind) -> Kind:
    if before is None:
        return kind
    size = kind.size if kind.size == before.size else None
    count, size_of_all = kind.count + before.count, kind.bytes + before.bytes
    return Kind(kind.name, kind.is_type, size, count, size_of_all, min(kind.example, before.example))


_EVIDENCE = (
    "python",
    "variable",
    "data",
    "thread-local",
    "mapping",
    "frame",
    "stack",
    "register",
    "allocator",
    "leaked",
)


# CPython's state has the ends of its collector's lists of objects. So it leads to what others own. (Since 3.7.)
_RUNTIME = "`_PyRuntime"


def is_runtime(root: Root) -> bool:
    """Return whether the root is the state of a language's runtime, which leads to objects that others own."""
    return root.kind == "variable" and root.name.endswith(_RUNTIME)


def _by_evidence(root: Root) -> tuple[int, bool, str]:
    return _EVIDENCE.index(root.kind), is_runtime(root), root.name


def joined(names: Sequence[str], count: int) -> str:
    """Return the first names of `count`, and how many more there are."""
    more = count - len(names[:_NAMED])
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def owners_by_all_edges(target: Target) -> Owners:
    """Return the owners as all pointers make them, also those that are left over from an earlier use of the memory."""
    return Owners(find_heap(target), all_edges=True)


def owners_by(
    owners: Owners, areas: list[tuple[int, int, int, int]], homes: list[tuple[int, Optional[int], bool]]
) -> _engine.Owners:
    """Return the owners where the memory of roots is divided in another way: see ``_engine.Marks.find_owners``."""
    roots = owners.roots
    parts = roots.parts, roots.selves, roots.names
    with bar("finding owners", 0) as progress:
        return owners.heap.marks.engine.find_owners(
            roots.ranges, areas, roots.values, homes, roots.leaves, False, progress, *parts
        )


@cached
def find_owners(target: Target) -> Owners:
    """Return the owners, computed once for each state of the target."""
    return Owners(find_heap(target))
