"""Allocation records: who allocated a block, when and from where, as something inside the process wrote it down.

Whoever it was (dmods' own auditor, an allocator that profiles itself), commands see the same: :func:`of` a target. A
new source is one entry in ``_sources``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Union

from dmods import _engine
from dmods.errors import UsageError, UserError
from dmods.kept import kept
from dmods.target import Target

if TYPE_CHECKING:
    from dmods._engine import LogRow, RecordRow

_BATCH = 65536
_EVERYTHING = 1 << 62
_MOST_HISTORY = 4096  # transactions of one block that are listed
HOW = "next time start the program with `dmods run -- PROG ARGS...`: the auditor then records every allocation"


class RecordedThread(NamedTuple):
    """A thread as the recorder knew it; it may have exited long ago."""

    tid: Optional[int]
    name: Optional[str] = None
    pthread: Optional[int] = None  # pthread_self()


NOBODY = RecordedThread(None)


@dataclass(frozen=True)
class Recording:
    """What one recorder left in the process. ``load`` reads it, when it is first asked for.

    A row's thread is an index into ``threads``, whose first entry stands for an unknown one. ``own`` is the recorder's
    own memory: nothing in it is a leak, and nothing in it keeps a block alive; nor does ``scratch``, the recorder's
    words within memory of others (thread-local variables). ``mean`` is how many bytes lie between two samples on
    average, 0 where every block was recorded. ``epoch`` is what makes a record's ns (CLOCK_MONOTONIC) those of
    CLOCK_REALTIME; None: not known. ``log``: whether it keeps transactions. ``structures``: addresses within the
    allocator's blocks that are the recorder's own, as is all that they lead to.
    """

    name: str
    load: Callable[[], _engine.Records]
    threads: Sequence[RecordedThread]
    own: Sequence[tuple[int, int]] = ()
    scratch: Sequence[tuple[int, int]] = ()
    mean: int = 0
    epoch: Optional[int] = None
    log: bool = False
    structures: Sequence[int] = ()
    notes: list[str] = field(default_factory=list)

    @cached_property
    def rows(self) -> _engine.Records:
        return self.load()

    def thread(self, number: int) -> RecordedThread:
        return self.threads[number] if number < len(self.threads) else NOBODY

    def threads_called(self, text: str, number: Optional[int]) -> list[int]:
        """The numbers of the threads whose tid, ``pthread_t`` or name that is."""
        return [
            index
            for index, thread in enumerate(self.threads)
            if index and ((number is not None and number in (thread.tid, thread.pthread)) or thread.name == text)
        ]


class Stack(NamedTuple):
    """Frames, innermost first, as (address, whether it is exact: else it is a return address)."""

    frames: Sequence[tuple[int, bool]]
    truncated: bool  # there were more


@dataclass(frozen=True)
class Record:
    """A live block: ``bufctl`` is where the record itself lies, ``time`` in ns of CLOCK_MONOTONIC."""

    recording: Recording
    bufctl: int
    address: int
    requested: int
    time: int
    thread: RecordedThread
    stack_key: int

    @property
    def stack(self) -> Stack:
        return Stack(*self.recording.rows.stack(self.stack_key))

    @property
    def lastlog(self) -> Optional[Transaction]:
        """The newest transaction of the block, where the log still has it."""
        return next(self.history(), None)

    def history(self) -> Iterator[Transaction]:
        """What happened at the block's address, newest first."""
        return _history(self.recording, self.address, None)


@dataclass(frozen=True)
class Transaction:
    """What happened to a block, by whom, when. ``at`` is where the entry of the log lies. Of a freed block:
    ``contents`` (address, bytes) of a copy of its beginning, and who had allocated it when, where that is known."""

    recording: Recording
    at: int
    sequence: int
    freed: bool
    address: int
    requested: int
    time: int
    thread: RecordedThread
    stack_key: int
    contents: Optional[tuple[int, int]]
    alloc_time: int
    alloc_thread: RecordedThread
    alloc_stack_key: int

    @property
    def stack(self) -> Stack:
        return Stack(*self.recording.rows.stack(self.stack_key))

    @property
    def alloc_stack(self) -> Stack:
        return Stack(*self.recording.rows.stack(self.alloc_stack_key))

    @property
    def event(self) -> str:
        return "freed" if self.freed else "allocated"

    @property
    def lastlog(self) -> Optional[Transaction]:
        """The one before it at the same address."""
        return next(self.history(), None)

    def history(self) -> Iterator[Transaction]:
        """What happened at the block's address before, newest first."""
        return _history(self.recording, self.address, self.sequence)


Entry = Union[Record, Transaction]


@dataclass(frozen=True)
class User:
    """The live blocks of one stack. ``likely_...``: what the records stand for, where only samples were taken."""

    recording: Recording
    stack_key: int
    count: int
    bytes: int  # asked for
    likely_count: float
    likely_bytes: float
    least: int
    most: int
    oldest: Record

    @property
    def stack(self) -> Stack:
        return Stack(*self.recording.rows.stack(self.stack_key))


EventRow = tuple[int, int, int, int, int, int]


@dataclass
class Newest:
    """Sums over everything; of each recording that has some the newest events, newest first, as (where the record or
    transaction lies, block, bytes asked for, time, stack key, thread's number)."""

    count: int = 0
    bytes: int = 0
    events: list[tuple[Recording, Sequence[EventRow]]] = field(default_factory=list)


class Records:
    """All recordings of a process: none, mostly."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        self.recordings = list(recordings)

    def __bool__(self) -> bool:
        return bool(self.recordings)

    @property
    def notes(self) -> list[str]:
        """What is missing or wrong, as far as has been read."""
        return [note for recording in self.recordings for note in recording.notes]

    @property
    def own(self) -> list[tuple[int, int]]:
        """The recorders' own memory."""
        return [extent for recording in self.recordings for extent in recording.own]

    @property
    def scratch(self) -> list[tuple[int, int]]:
        """The recorders' words within others' memory."""
        return [extent for recording in self.recordings for extent in recording.scratch]

    @property
    def sampled(self) -> bool:
        return any(recording.mean for recording in self.recordings)

    def of_block(self, address: int) -> Optional[Record]:
        """The record of the block that begins exactly there."""
        for recording in self.recordings:
            row = recording.rows.of_block(address)
            if row is not None:
                return record(recording, row)
        return None

    def at(self, address: int) -> Optional[Entry]:
        """The record, or entry of a log, that itself lies exactly there."""
        for recording in self.recordings:
            row = recording.rows.at(address)
            if row is not None:
                return record(recording, row)
            logged = recording.rows.logged_at(address)
            if logged is not None:
                return transaction(recording, logged)
        return None

    def last_of(self, address: int) -> Optional[Transaction]:
        """The newest transaction of a block that began there, or else of one that held the address."""
        for recording in self.recordings:
            row = next(iter(recording.rows.logged_of(address, 1)), None) or recording.rows.logged_holding(address)
            if row is not None:
                return transaction(recording, row)
        return None

    def all(self) -> Iterator[Record]:
        """Every record, by address."""
        for recording in self.recordings:
            at = 0
            while rows := recording.rows.records(at, _BATCH):
                yield from (record(recording, row) for row in rows)
                at = rows[-1][0] + 1

    def log(self, freed: Optional[bool] = None) -> Iterator[Transaction]:
        """The transactions, newest first; of one kind, where asked."""
        for recording in self.recordings:
            before = 1 << 64
            while rows := recording.rows.log(before, _BATCH, freed):
                yield from (transaction(recording, row) for row in rows)
                before = rows[-1][1]

    def newest(self, freed: bool, threads: str, number: Optional[int], most: Optional[int] = None) -> Newest:
        """What the threads so called allocated, and is still there, or freed, as far as logs go back."""
        found = Newest()
        for recording in self.recordings:
            numbers = recording.threads_called(threads, number)
            count, size, rows = recording.rows.newest(freed, numbers, _EVERYTHING if most is None else max(0, most))
            found.count += count
            found.bytes += size
            found.events.append((recording, rows))
        return found

    def users(self) -> list[User]:
        """Who holds memory, by stack; the biggest first."""
        found = [
            User(recording, key, count, size, likely_count, likely, least, most, record(recording, oldest))
            for recording in self.recordings
            for key, count, size, likely_count, likely, least, most, oldest in recording.rows.users()
        ]
        return sorted(found, key=lambda user: -user.likely_bytes)


def record(recording: Recording, row: RecordRow) -> Record:
    address, at, size, time, stack, thread = row
    return Record(recording, at, address, size, time, recording.thread(thread), stack)


def transaction(recording: Recording, row: LogRow) -> Transaction:
    at, sequence, freed, address, size, time, stack, thread, alloc, (copy, kept) = row
    alloc_time, alloc_stack, alloc_thread = alloc
    return Transaction(
        recording,
        at,
        sequence,
        freed,
        address,
        size,
        time,
        recording.thread(thread),
        stack,
        (copy, kept) if copy else None,
        alloc_time,
        recording.thread(alloc_thread),
        alloc_stack,
    )


def _history(recording: Recording, address: int, before: Optional[int]) -> Iterator[Transaction]:
    rows = recording.rows.logged_of(address, _MOST_HISTORY)
    return (transaction(recording, row) for row in rows if before is None or row[1] < before)


# -- a target's -------------------------------------------------------------------------------------------------------


def _sources() -> Sequence[Callable[[Target], Optional[Recording]]]:
    """Each finds its recorder's root, and reads no more than that."""
    from dmods import audit
    from dmods.jemalloc import profile

    return (audit.find, profile.find)


@kept
def of(target: Target) -> Records:
    """The target's records: found once for each state of it, read when first asked for."""
    found = (source(target) for source in _sources())
    return Records(recording for recording in found if recording is not None)


def require(target: Target, log: bool = False) -> Records:
    """The target's records. Raises UserError where there are none; with ``log``, where nobody kept transactions."""
    records = of(target)
    if not records:
        raise UserError("no allocation records: the program did not run under the auditor", HOW)
    if log and not any(recording.log for recording in records.recordings):
        how = "next time: `dmods run --audit audit,log=100000 -- PROG ARGS...`"
        raise UserError("no transaction log: the auditor was not asked for one", how)
    return records


def named(target: Target, text: str) -> Entry:
    """What a user means by an address: a bufctl, an entry of the log, a block, or any address in one; of a freed block
    its last transaction. Raises UsageError, UserError."""
    records = require(target)
    address = target.evaluate(text)
    found: Optional[Entry] = records.at(address) or records.of_block(address)
    if found is not None:
        return found
    from dmods import heap

    block = heap.of(target).block_at(address)
    found = records.of_block(block.address) if block is not None else None
    found = found or records.last_of(address)
    if found is not None:
        return found
    if block is None:
        how = "give what findleaks shows as BUFCTL, or an address in a buffer; `walk bufctl` lists all"
        raise UsageError(f"{text} is no bufctl and in no buffer", how)
    if block.state == heap.FREE:
        raise UserError(f"the buffer at {block.address:#x} is free, and the log does not go back to it", HOW_LOG)
    why = "only samples were recorded" if records.sampled else "it may be older than the auditor"
    raise UserError(f"the buffer at {block.address:#x} has no record: {why}", "`walk bufctl` lists the records")


HOW_LOG = "a log keeps who freed what: `dmods run --audit audit,log=1000000 -- PROG ARGS...`"
