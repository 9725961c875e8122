"""The types of a heap's blocks from all evidence: what the program itself says, then debug information, then shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from dmods.base.cached import cached
from dmods.base.class_names import named_alike, plain_class
from dmods.base.dataclass import replace
from dmods.base.named_tuple import NamedTuple
from dmods.base.sizes import counted
from dmods.graph.types.block_kinds import Types, find_types
from dmods.graph.types.proven_sizes import proven_counts
from dmods.graph.types.type_name import TypeName, type_name
from dmods.graph.types.type_row import NOTHING, Amount, TypeRow, named_so, short_length, type_id
from dmods.graph.types.typegraph import ALIKE, CONFIDENCE, TypeGraph, find_typegraph, opened, sampled_leaks
from dmods.heap.heap import ProcessHeap
from dmods.heap.leaks.groups import NO_STACK, LeakGroup, group_of_kind
from dmods.records.callers import Callers
from dmods.target import Target

if TYPE_CHECKING:
    from dmods import _engine
    from dmods._engine import SumRow

_BATCH = 1 << 16
#: Blocks in use from which the types of leaks are those of a sample.
LARGE = 1 << 17
IN_POOL = "typed pointer into a pool"
BY_CONTENT = "content: its pointers agree"
_MANY = 1  # the shape of an array (dmods.graph.types.typegraph.Claim)


class Wanted(NamedTuple):
    """Kinds and types of blocks. A type is the engine's number, and whether it is an array."""

    kinds: list[int]
    types: list[tuple[int, bool]]


class TypedBlocks:
    """The types of the blocks of one target. ``graph`` is None where there is no debug information."""

    def __init__(self, types: Types, graph: Optional[TypeGraph]) -> None:
        self.types, self.graph = types, graph
        self._rows: Optional[list[TypeRow]] = None
        self._numbers: dict[str, list[tuple[int, bool]]] = {}
        self._by_evidence: dict[str, Amount] = {}

    @property
    def notes(self) -> list[str]:
        """Return what is uncertain."""
        if self.graph is None:
            return self.types.notes()
        count = self.graph.conflict_count
        which = counted(count, "block")
        said = f"types: two sources disagree on {which}: `typegraph` lists them, `whattype ADDR` shows both"
        return [*self.types.notes(), *self.graph.notes, *([said] if count else ())]

    def rows(self) -> list[TypeRow]:
        """Return the types and shapes with their sums. No block is in two of them."""
        if self._rows is None:
            self._rows = self.types.rows() if self.graph is None else self._typed_rows(self.graph)
        return self._rows

    def by_evidence(self) -> dict[str, Amount]:
        """Return how many blocks have a type by which evidence; "none": they have no type."""
        rows = self.rows()
        if self.graph is None and not self._by_evidence:
            for row in rows:
                self._count(row.name, row.total)
        return self._by_evidence

    def _count(self, name: TypeName, amount: Amount) -> None:
        evidence = name.evidence if name.is_type else "none"
        self._by_evidence[evidence] = self._by_evidence.get(evidence, NOTHING) + amount

    def _typed_rows(self, graph: TypeGraph) -> list[TypeRow]:
        found: dict[tuple[str, str], TypeRow] = {}
        by_kind, by_type, pooled = graph.engine.sums(self.types.kinds, 0, self.types.heaps[0].marks.engine)
        asked = proven_counts(self.types, 0, graph.engine)
        for kind, sums in enumerate(by_kind):
            if sums.first is not None:
                name = self.types.name(kind)
                _add(found, name.row, name, self.types.id(kind), sums, asked=asked[kind]).kinds.append(kind)
                self._count(name, _total(sums))
        spellings: dict[str, set[str]] = {}
        for typed in by_type:
            spellings.setdefault(plain_class(typed[4]), set()).add(typed[4])
        for number, shape, _rank, evidence, written, sums in by_type:
            # The control blocks of shared_ptr have the same names with and without debug information.
            name = type_name(written, evidence, CONFIDENCE[evidence])
            kind_and_shape = (number, shape == _MANY)
            self._numbers.setdefault(name.text, []).append(kind_and_shape)
            # Two types may have one short name: strings of two versions of the library.
            key = name.text, written if len(spellings[name.text]) > 1 else ""
            row = _add(found, key, name, type_id(name.text), sums)
            if kind_and_shape not in row.types:
                row.types.append(kind_and_shape)
            self._count(name, _total(sums))
        for written, proven, sums in pooled:
            name = type_name(written, BY_CONTENT if proven else IN_POOL, "possible")
            name = replace(name, text=f"{name.text} in a pool")
            row = _add(found, (name.text, written), name, type_id(name.text), sums)
            row.pooled = True
            self._count(name, replace(_total(sums), count=0))
        length = short_length(row.id for row in found.values() if not row.kinds)
        for row in found.values():
            row.id = row.id if row.kinds else row.id[:length]
        return sorted(found.values(), key=lambda row: (-row.total.bytes, row.name.text))

    def retained(self, owners: _engine.Owners) -> list[tuple[TypeRow, int, int]]:
        """Return (type, bytes that its live blocks keep alive, bytes that its leaked blocks do), themselves included.

        A byte counts once for each type. The dominator tree of the owners decides: no approximation.
        """
        rows = self.rows()
        groups = [0] * len(self.types)  # group 0 are kinds that this heap does not have
        types: list[tuple[int, bool, int]] = []
        for number, row in enumerate(rows, 1):
            for kind in row.kinds:
                groups[kind] = number
            types.extend((kind, many, number) for kind, many in row.types)
        if self.graph is None:
            sums = self.types.kinds.retained(0, owners, groups, len(rows) + 1)
        else:
            sums = self.graph.engine.retained(self.types.kinds, 0, owners, groups, types, len(rows) + 1)
        return [(row, *found) for row, found in zip(rows, sums[1:])]

    def matching(self, text: str, shape: bool) -> Wanted:
        """Return the kinds and types that `text` means, as ``Types.matching``."""
        rows = self.rows()
        kinds = self.types.matching(text, shape)
        names = list(self._numbers)
        if shape:
            ids = {name: type_id(name) for name in names}
            meant = named_so(text, ids.values())
            chosen = [name for name in names if ids[name] in meant]
        else:
            # What is spelled so in one list is meant alone: `shop::Point` is no `exception shop::Point` of the other.
            alike = set(named_alike(text, dict.fromkeys([*(self.types.name(kind).text for kind in kinds), *names])))
            kinds = [kind for kind in kinds if self.types.name(kind).text in alike]
            chosen = [name for name in names if name in alike]
        types = [number for name in dict.fromkeys(chosen) for number in self._numbers[name]]
        in_use = {kind for row in rows for kind in row.kinds}
        return Wanted([kind for kind in kinds if kind in in_use], types)

    def addresses(self, wanted: Wanted, states: Sequence[int]) -> Iterator[int]:
        """Yield the addresses of the blocks of these kinds and types in one of the states."""
        if self.graph is None:
            yield from self.types.addresses(wanted.kinds, states)
            return
        start: Optional[tuple[int, int]] = (0, 0)
        heap = self.types.heaps[0].marks.engine
        while start is not None:
            batch, start = self.graph.engine.addresses(
                self.types.kinds, 0, heap, wanted.kinds, wanted.types, list(states), start, _BATCH
            )
            yield from batch


def _add(
    found: dict[tuple[str, str], TypeRow],
    key: tuple[str, str],
    name: TypeName,
    number: str,
    sums: SumRow,
    *,
    asked: tuple[int, int] = (0, 0),
) -> TypeRow:
    row = found.get(key)
    if row is None:
        row = found[key] = TypeRow(name, number, least=sums.least, most=sums.most)
    elif _total(sums).bytes > row.total.bytes // 2:
        row.name = name  # the evidence for most of its bytes
    row.add(sums, name.confidence, asked)
    return row


def _total(sums: SumRow) -> Amount:
    return Amount(*sums.live) + Amount(*sums.leaked)


def leaks_by_type(heap: ProcessHeap, callers: Callers, sample: bool = False) -> list[LeakGroup]:
    """Return the direct leaks by size and by type or shape, with types from debug information where there is any.

    For a heap without allocation records. With ``sample``, the types in a large heap are those of some blocks of each
    group: to find those of all blocks takes several times as long as to find the leaks.
    """
    if not heap.leaks().direct_count or heap.index.follow.odd or opened(heap.target) is None:
        return _shapes_of_leaks(heap, callers)
    types = Types([heap], direct=True)
    nobody = callers.caller(NO_STACK)
    found: list[LeakGroup] = []
    for group, typed, sampled in _typed_leaks(heap, types, sample):
        if typed is None:
            found.append(group_of_kind(group, nobody, _leak_name(types.name(group.kind or 0))))
        else:
            written, evidence = typed
            row = group_of_kind(group, nobody, plain_class(written), evidence == ALIKE)
            found.append(replace(row, sampled=row.count if sampled else 0))
    return _joined_groups(found)


def _typed_leaks(
    heap: ProcessHeap, types: Types, sample: bool
) -> list[tuple[_engine.Group, Optional[tuple[str, str]], bool]]:
    """Return the direct leaks by kind or type: (group, type and evidence, whether it is the type of a sample)."""
    if sample and _blocks(heap) > LARGE:
        some = sampled_leaks(heap, types.kinds)
        return some.groups if some is not None else []
    graph = find_typegraph(heap.target)
    rows = graph.engine.groups(types.kinds, 0, heap.marks.engine) if graph is not None else []
    return [(group, typed, False) for group, typed in rows]


def _blocks(heap: ProcessHeap) -> int:
    leaks = heap.leaks()
    return leaks.reached + leaks.direct_count + leaks.indirect_count


@cached
def _typed(target: Target) -> dict[int, TypedBlocks]:
    return {}


def typed_blocks(target: Target) -> TypedBlocks:
    """Return the types of the target's blocks. They are found once, and again when the user has taught a type."""
    graph = find_typegraph(target)
    known = _typed(target)
    if id(graph) not in known:
        known.clear()
        known[id(graph)] = TypedBlocks(find_types(target), graph)
    return known[id(graph)]


def _shapes_of_leaks(heap: ProcessHeap, callers: Callers) -> list[LeakGroup]:
    """Return the direct leaks by size, and by type or shape, without debug information."""
    if not heap.leaks().direct_count:
        return []
    types = Types([heap], direct=True)
    nobody = callers.caller(NO_STACK)
    found: list[LeakGroup] = []
    for group in types.kinds.groups(0, heap.marks.engine):
        kind = _leak_name(types.name(group.kind or 0))
        found.append(group_of_kind(group, nobody, kind))
    return _joined_groups(found)


def _leak_name(name: TypeName) -> str:
    """Return the type or the shape without the size, which findleaks shows beside it."""
    return name.text if name.is_type else name.text.partition(": ")[2] or name.text


def _joined_groups(groups: Iterable[LeakGroup]) -> list[LeakGroup]:
    """Return the groups sorted, with one for all that have the same size and name."""
    found: dict[tuple[object, ...], list[LeakGroup]] = {}
    for group in groups:
        found.setdefault((group.size, group.allocator, group.single, group.kind), []).append(group)
    return sorted((_joined(same) for same in found.values()), key=lambda group: group.order)


def _joined(groups: Iterable[LeakGroup]) -> LeakGroup:
    """Return one group for several of the same size and name."""
    rows = list(groups)
    return replace(
        rows[0],
        count=sum(row.count for row in rows),
        first=min(row.first for row in rows),
        kept_count=sum(row.kept_count for row in rows),
        kept_bytes=sum(row.kept_bytes for row in rows),
        guessed=sum(row.guessed for row in rows),
        sampled=sum(row.sampled for row in rows),
    )
