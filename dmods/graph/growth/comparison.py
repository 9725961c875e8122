"""Compare cores: count new, gone and surviving blocks, under several keys.

The cores are in order, the oldest first. The engine merges their lists of blocks (engine/core/src/graph/growth.rs).
Under every key the bytes of the first core plus the growth are the bytes of the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Optional

from dmods import _engine
from dmods.base.dataclass import dataclass, field, replace
from dmods.base.named_tuple import NamedTuple
from dmods.base.progress import Progress
from dmods.graph.growth.core_order import hours_between
from dmods.graph.growth.keys import OWN_KEY, OWN_NAME, Labels, arena_keys, holder_label, set_keys
from dmods.graph.growth.net_growth import ByType, TypeGrowth
from dmods.graph.growth.same_process import difference
from dmods.graph.owners.heap_owners import find_owners
from dmods.graph.types.block_kinds import Types, size_class
from dmods.graph.types.outside_heap import Modules, shifts
from dmods.graph.types.type_row import NOTHING, Amount
from dmods.heap.heap import ProcessHeap
from dmods.heap.ledger import Ledger, find_ledger
from dmods.heap.verdict import heap_verdict
from dmods.records.callers import Callers
from dmods.records.model import RecordedThread, Stack

KEYS = ("size", "stack", "type", "shape", "owner", "holder", "thread", "arena", "state")
STATES = ("live", "leaked", "the allocator's own")
_UNKNOWN = (1 << 64) - 1
_NO_RECORD = "(no record)"
_LEAST_GROWTH = 20  # one in so many: a suspect has at least this part of what grew as it did
_LAST_STEP = 10  # one in so many: of the growth of a suspect, this part is in the last interval
_SUSPECTS = 3


# A core as the engine takes it: `_engine.compare_heaps`.
_Core = tuple[
    _engine.Marks,
    Optional[_engine.Owners],
    list[tuple[_engine.Records, tuple[int, int, int, int], list[int]]],
    list[tuple[int, int, int]],
    dict[int, int],
    list[int],
    bool,
]


@dataclass(frozen=True)
class Change:
    """The blocks of one key.

    `totals` has one entry for each core. `gone`, `new`, `kept` and `survived` are empty where the cores are of
    different runs. `kept` are new blocks that a core between the first and the last has already. `proven` counts the
    surviving and kept blocks whose records prove that they are the same. `example` is a block of the last core. `times`
    are the oldest and the newest record of new blocks, in ns of CLOCK_MONOTONIC.
    """

    label: str
    totals: tuple[Amount, ...]
    gone: Amount = NOTHING
    new: Amount = NOTHING
    kept: Amount = NOTHING
    survived: Amount = NOTHING
    proven: int = 0
    example: Optional[int] = None
    times: Optional[tuple[int, int]] = None
    stack: Optional[Stack] = None
    core: int = -1  # whose stack it is
    shape: bool = False  # the label is a shape, and no type is known
    leaked: tuple[Amount, ...] = ()  # of `totals`; () where it is not known

    @property
    def growth(self) -> int:
        """Return by how many bytes the key grew."""
        return self.totals[-1].bytes - self.totals[0].bytes

    @property
    def leaks(self) -> bool:
        """Return whether most of the growth has leaked."""
        return bool(self.leaked) and 0 < self.growth <= 2 * (self.leaked[-1].bytes - self.leaked[0].bytes)

    @property
    def steps(self) -> list[int]:
        """Return the growth from each core to the next, in bytes."""
        return [after.bytes - before.bytes for before, after in zip(self.totals, self.totals[1:])]


class Memory(NamedTuple):
    """The memory of a process's allocators by use, in bytes.

    `own` are the allocator's own blocks. `top` is free and in no block. `rest` are headers, and what the allocator uses
    itself. `ledger` has all memory of the process.
    """

    live: int
    leaked: int
    own: int
    free: int
    top: int
    ledger: Ledger

    @property
    def mapped(self) -> int:
        """Return the bytes of the allocators' memory."""
        return self.ledger.heap

    @property
    def in_use(self) -> int:
        """Return the bytes of all blocks in use."""
        return self.live + self.leaked + self.own

    @property
    def rest(self) -> int:
        """Return the bytes that are in no block."""
        return self.mapped - self.in_use - self.free - self.top


@dataclass
class Growth:
    """The comparison of several cores by one key. `differs` says why the addresses could not be compared.

    `hours` is the time from the first core to the last, where allocation records tell it.
    """

    by: str
    changes: list[Change]
    memory: list[Memory]
    differs: Optional[str] = None
    notes: list[str] = field(default_factory=list)
    hours: Optional[float] = None
    changed: tuple[int, int] = (0, 0)  # surviving blocks that were compared, and how many of them hold other content
    replaced: list[tuple[Change, ByType]] = field(default_factory=list)  # stacks whose type did not grow as they did
    partial: frozenset[int] = frozenset()  # cores whose heap is not whole: blocks may be in use that they do not show

    @property
    def growth(self) -> int:
        """Return by how many bytes the blocks in use grew."""
        return self.memory[-1].in_use - self.memory[0].in_use

    def suspects(self) -> list[Change]:
        """Return at most three changes that look like a leak: what leaks comes first, then the largest.

        With three or more cores these grew from each core to the next, and blocks that were allocated after the first
        core are still there in the last. A cache that has reached its bound does not grow in the last interval.
        Requests in flight are not kept. A core between whose heap is not whole shows too little: it clears what has
        not grown since, and does not clear what it lacks. With two cores they are only what grew most.
        """
        aligned, replaced = self.differs is None, [change for change, _type in self.replaced]
        found = [each for each in self.changes if each.growth > 0 and all(each is not other for other in replaced)]
        if len(self.memory) > 2:
            # A cache that was filled at once may be far larger than what has leaked so far.
            found = [change for change in found if _grows(change, aligned, self.partial)]
            found.sort(key=lambda change: -_score(change, aligned))
        found.sort(key=lambda change: not change.leaks)
        most = sum(change.growth for change in found)
        return [change for change in found if change.growth * _LEAST_GROWTH >= most][:_SUSPECTS]

    def churn(self) -> Optional[tuple[float, float]]:
        """Return the percentages of the first core's bytes that have gone and of the last core's that are new.

        Growth is no part of the second: only what replaced something of the same key. None for different runs.
        """
        old, now = self.memory[0].in_use, self.memory[-1].in_use
        if self.differs is not None or not old or not now:
            return None
        gone = sum(change.gone.bytes for change in self.changes)
        replaced = sum(min(change.gone.bytes, change.new.bytes) for change in self.changes)
        return 100 * gone / old, 100 * replaced / now


def _grows(change: Change, aligned: bool, partial: frozenset[int]) -> bool:
    steps = change.steps
    last = len(steps)  # the number of the last core
    steady = all(step > 0 or (core in partial and core < last) for core, step in enumerate(steps, 1))
    lacking = any(change.totals[core].count == 0 for core in partial if 0 < core < last)
    enough = steps[-1] * _LAST_STEP >= change.growth
    return steady and enough and (not aligned or change.kept.bytes > 0 or lacking)


def _score(change: Change, aligned: bool) -> int:
    """Return how many bytes are suspect: what was kept, and no more than what it grew."""
    return min(change.growth, change.kept.bytes + change.steps[-1]) if aligned else change.growth


def compare(heaps: Sequence[ProcessHeap], by: str, callers: Callable[[int], Callers]) -> Growth:
    """Return the growth from the first heap to the last. `callers` names the stacks of a core.

    Where records do not tell which blocks are the same, the types of objects do.
    """
    reasons = [difference(heap.target, heaps[-1].target) for heap in heaps[:-1]]
    differs = next((reason for reason in reasons if reason is not None), None)
    recorded = all(map(has_records, heaps))
    types = None
    if by in ("type", "shape", "holder") or (differs is None and not recorded):
        types = Types(heaps, shapes=by == "shape")
    labels = Labels()
    modules = types.modules if types is not None else Modules()
    arenas = arena_keys(heaps, labels, differs is None)
    partial = frozenset(index for index, heap in enumerate(heaps) if lacking(heap) is not None)
    aligned = differs is None
    cores = [
        _core(
            heap,
            labels,
            shifts(heap.target, modules),
            keys,
            whole=index not in partial,
            aligned=aligned,
            recorded=recorded,
            by=by,
        )
        for index, (heap, keys) in enumerate(zip(heaps, arenas))
    ]
    with Progress("comparing") as bar:
        kinds = types.kinds if types is not None else None
        key = {"type": "kind", "shape": "kind"}.get(by, by)
        rows, stacks = _engine.compare_heaps(cores, kinds, key, differs is None, lambda done: bar.update(done, 0))
    if by == "stack":
        changes = [_by_stack(row, stacks, heaps, callers) for row in rows]
    else:
        changes = [_change(row, *_label(by, row.key, types, labels)) for row in rows]
    notes = types.notes(len(heaps) - 1) if types is not None else []
    merged = sorted(_merged(changes), key=lambda change: (-change.growth, change.label))
    hours = hours_between(heaps[0], heaps[-1]) if differs is None else None
    changed = _changed_in_place(heaps[0], heaps[-1]) if differs is None and not recorded else (0, 0)
    memory = [_memory(heap) for heap in heaps]
    found = Growth(by, merged, memory, differs, notes, hours, changed, partial=partial)
    if by == "stack":
        _net_by_type(found, heaps, cores)
    return found


def _changed_in_place(old: ProcessHeap, new: ProcessHeap) -> tuple[int, int]:
    """Return how many surviving blocks were compared, and in how many most words have changed.

    A block that is linked elsewhere, or counts, changes a word or two.
    """
    return _engine.changed_in_place(old.marks.engine, new.marks.engine, list(old.owned), old.words.size)


def _net_by_type(found: Growth, heaps: Sequence[ProcessHeap], cores: list[_Core]) -> None:
    """Set apart the suspects whose type did not grow: other stacks shrank as they grew."""
    shrunk = -sum(change.growth for change in found.changes if change.growth < 0)
    types, seen = None, set[int]()
    while True:
        left = [change for change in found.suspects() if id(change) not in seen and shrunk * 2 > change.growth]
        if not left:
            return
        if types is None:
            all_types = Types(heaps)
            aligned = found.differs is None
            rows, _stacks = _engine.compare_heaps(cores, all_types.kinds, "kind", aligned, None)
            types = TypeGrowth(all_types, {row.key: [total[1] for total in row.totals] for row in rows})
        for change in left:
            seen.add(id(change))
            by_type = types.replaced(change.example, change.steps)
            if by_type is not None:
                found.replaced.append((change, by_type))


def lacking(heap: ProcessHeap) -> Optional[str]:
    """Return what of the heap cannot be seen, or None where all of its blocks are known."""
    reason = heap_verdict(heap).reason
    if reason:
        return reason
    lost = sum(end - start for report in heap.index.reports for start, end in report["lost"])
    return f"{lost} bytes of the heap are damaged" if lost else None


def has_records(heap: ProcessHeap) -> bool:
    """Return whether the core has records of blocks. A damaged core may have a recorder and none of its records."""
    return any(len(recording.rows) for recording in heap.records.recordings)


def _core(
    heap: ProcessHeap,
    labels: Labels,
    modules: list[tuple[int, int, int]],
    arenas: dict[int, int],
    *,
    whole: bool,
    aligned: bool,
    recorded: bool,
    by: str,
) -> _Core:
    recorders = [
        (recording.rows, recording.clock, [_thread_key(labels, thread, aligned) for thread in recording.threads])
        for recording in heap.records.recordings
        if recorded  # where one core has none, records prove nothing
    ]
    owners = find_owners(heap.target) if by in ("owner", "holder") else None
    sets, found = (set_keys(owners, labels), owners.engine) if owners is not None else ([], None)
    return heap.marks.engine, found, recorders, modules, arenas, sets, whole


def _thread_key(labels: Labels, thread: RecordedThread, aligned: bool) -> int:
    if thread.tid is None and thread.name is None:
        return _UNKNOWN
    if not aligned:  # a tid means nothing in another run
        return labels.key(("thread", thread.name), thread.name or "?")
    name = f"{thread.name or '?'} ({thread.tid})" if thread.tid is not None else thread.name or "?"
    return labels.key(("thread", thread.tid, thread.name), name)


def _label(by: str, key: int, types: Optional[Types], labels: Labels) -> tuple[str, bool]:
    """Return the text for a key, and whether it is a shape."""
    if by in ("type", "shape") and types is not None:
        if key >= len(types):
            return "(not known)", False
        name = types.name(key)
        return name.text, by == "shape" or not name.is_type
    return _text(by, key, types, labels), False


def _text(by: str, key: int, types: Optional[Types], labels: Labels) -> str:
    if by == "state":
        return STATES[key]
    if by == "owner" and key == OWN_KEY:
        return OWN_NAME
    if by == "holder" and types is not None:
        return holder_label(key, types, labels.names)
    if by == "size":
        low, high = size_class(key)
        return str(low) if low == high else f"{low}..{high}"
    return _NO_RECORD if key == _UNKNOWN else labels.names.get(key, str(key))


def _by_stack(
    row: _engine.GrowthRow,
    stacks: Sequence[tuple[int, int, int]],
    heaps: Sequence[ProcessHeap],
    callers: Callable[[int], Callers],
) -> Change:
    if row.key >= len(stacks):
        return _change(row, _NO_RECORD)
    core, recorder, key = stacks[row.key]
    stack = Stack(*heaps[core].records.recordings[recorder].rows.stack(key))
    return replace(_change(row, callers(core).caller(stack).text), stack=stack, core=core)


def _change(row: _engine.GrowthRow, label: str, shape: bool = False) -> Change:
    totals, leaked = (tuple(Amount(*total) for total in each) for each in (row.totals, row.leaked))
    amounts = _amount(row.gone), _amount(row.new), _amount(row.kept), _amount(row.survived)
    return Change(label, totals, *amounts, row.proven, row.example, row.times, shape=shape, leaked=leaked)


def _amount(count_and_bytes: tuple[int, int]) -> Amount:
    return Amount(*count_and_bytes) if count_and_bytes[0] else NOTHING  # most are nothing


def _merged(changes: Sequence[Change]) -> list[Change]:
    """Return one change for each label. Different stacks with one caller stay apart."""
    found: dict[object, Change] = {}
    for change in changes:
        key = (change.label, tuple(change.stack.frames) if change.stack is not None else None)
        before = found.get(key)
        found[key] = change if before is None else _sum(before, change)
    return list(found.values())


def _sum(one: Change, other: Change) -> Change:
    times = [each for each in (one.times, other.times) if each is not None]
    return replace(
        one,
        totals=tuple(a + b for a, b in zip(one.totals, other.totals)),
        leaked=tuple(a + b for a, b in zip(one.leaked, other.leaked)),
        gone=one.gone + other.gone,
        new=one.new + other.new,
        kept=one.kept + other.kept,
        survived=one.survived + other.survived,
        proven=one.proven + other.proven,
        example=one.example if one.example is not None else other.example,
        times=(min(t[0] for t in times), max(t[1] for t in times)) if times else None,
    )


def _memory(heap: ProcessHeap) -> Memory:
    live = leaked = own = free = 0
    for size, live_count, free_count, leaked_count, own_count in heap.marks.engine.sizes():
        live += size * live_count
        free += size * free_count
        leaked += size * leaked_count
        own += size * own_count
    ledger = find_ledger(heap.target)
    return Memory(live, leaked, own, free, ledger.free_pages.bytes, ledger)
