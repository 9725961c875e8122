"""Allocation records: who allocated a block, when and from where.

A recorder inside the process wrote them: dmods' own auditor, or an allocator that profiles itself. Commands see the
same model of both. `sources` finds the recorders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Optional, Union

from dmods.allocators.recording import NOBODY, Guards, LastWords, RecordedThread, Recording
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple

if TYPE_CHECKING:
    from dmods._engine import LogRow, RecordRow

__all__ = [
    "NOBODY",
    "Entry",
    "Guards",
    "LastWords",
    "Record",
    "RecordedThread",
    "Recording",
    "Records",
    "Stack",
    "StackUsage",
    "Transaction",
]

_BATCH = 65536
_EVERYTHING = 1 << 62
_MOST_HISTORY = 4096  # transactions of one block that are listed


class Stack(NamedTuple):
    """Frames, innermost first, as (address, whether it is exact). An inexact address is a return address."""

    frames: Sequence[tuple[int, bool]]
    truncated: bool  # the frame limit cut it


@dataclass(frozen=True)
class Record:
    """A live block. `bufctl` is the address of the record itself, `time` is in ns of CLOCK_MONOTONIC."""

    recording: Recording
    bufctl: int
    address: int
    requested: int
    time: int
    thread: RecordedThread
    stack_key: int

    @property
    def stack(self) -> Stack:
        """Return the stack of the allocation."""
        return Stack(*self.recording.rows.stack(self.stack_key))

    @property
    def lastlog(self) -> Optional[Transaction]:
        """Return the newest transaction of the block, or None where the log no longer has it."""
        return next(self.history(), None)

    def history(self) -> Iterator[Transaction]:
        """Return the transactions at the block's address, newest first."""
        return _history(self.recording, self.address, None)


@dataclass(frozen=True)
class Transaction:
    """An allocation or a free. `at` is the address of the log entry.

    Of a freed block, `contents` is (address, bytes) of a copy of its beginning. The `alloc_` fields say who had
    allocated it, where that is known.
    """

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
        """Return the stack of the event."""
        return Stack(*self.recording.rows.stack(self.stack_key))

    @property
    def alloc_stack(self) -> Stack:
        """Return the stack that had allocated the block."""
        return Stack(*self.recording.rows.stack(self.alloc_stack_key))

    @property
    def event(self) -> str:
        """Return "freed" or "allocated"."""
        return "freed" if self.freed else "allocated"

    @property
    def lastlog(self) -> Optional[Transaction]:
        """Return the transaction before this one at the same address, or None."""
        return next(self.history(), None)

    def history(self) -> Iterator[Transaction]:
        """Return the earlier transactions at the block's address, newest first."""
        return _history(self.recording, self.address, self.sequence)


Entry = Union[Record, Transaction]


@dataclass(frozen=True)
class StackUsage:
    """The live blocks of one stack. Where only samples were taken, `likely_...` is what they stand for."""

    recording: Recording
    stack_key: int
    count: int
    bytes: int  # asked for
    likely_count: float
    likely_bytes: float
    least: int
    most: int
    oldest: Record
    part: int = 0  # the thread's index, or the size, where stacks are split by that

    @property
    def stack(self) -> Stack:
        """Return the stack that allocated the blocks."""
        return Stack(*self.recording.rows.stack(self.stack_key))

    @property
    def identity(self) -> tuple[int, int]:
        """Return a key that is unique to its stack."""
        return id(self.recording), self.stack_key

    @property
    def first(self) -> tuple[int, int]:
        """Return the time of the oldest block, and the address of its record."""
        return self.oldest.time, self.oldest.bufctl


@dataclass
class RecentEvents:
    """Totals of everything, and the newest events of each recording that has some, newest first.

    Of a transaction, ``at`` is its own place.
    """

    count: int = 0
    bytes: int = 0
    events: list[tuple[Recording, Sequence[RecordRow]]] = field(default_factory=list)


class Records:
    """All recordings of a process. Most processes have none."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        self.recordings = list(recordings)

    def __bool__(self) -> bool:
        return bool(self.recordings)

    @property
    def notes(self) -> list[str]:
        """Return what is missing or wrong in the parts that have been read so far."""
        return [note for recording in self.recordings for note in recording.notes]

    @property
    def last_words(self) -> Optional[LastWords]:
        """Return why a recorder stopped the program, or None."""
        return next((each.last_words for each in self.recordings if each.last_words is not None), None)

    def last_words_stack(self, words: LastWords) -> Stack:
        """Return the stack that called the recorder when it stopped the program."""
        for recording in self.recordings:
            if recording.last_words == words:
                return Stack(*recording.rows.stack(words.stack))
        return Stack((), False)

    def last_words_thread(self, words: LastWords) -> RecordedThread:
        """Return the thread that called the recorder when it stopped the program."""
        return next((each.thread(words.thread) for each in self.recordings if each.last_words == words), NOBODY)

    @property
    def own(self) -> list[tuple[int, int]]:
        """Return the memory of the recorders."""
        return [extent for recording in self.recordings for extent in recording.own]

    @property
    def scratch(self) -> list[tuple[int, int]]:
        """Return the words of the recorders in memory of others."""
        return [extent for recording in self.recordings for extent in recording.scratch]

    @property
    def sampled(self) -> bool:
        """Return whether a recording holds only a sample of the allocations."""
        return any(recording.mean for recording in self.recordings)

    def of_block(self, address: int) -> Optional[Record]:
        """Return the record of the block that begins at the address, or None."""
        for recording in self.recordings:
            row = recording.rows.of_block(address)
            if row is not None:
                return record(recording, row)
        return None

    def at(self, address: int) -> Optional[Entry]:
        """Return the record or log entry that lies exactly at the address, or None."""
        for recording in self.recordings:
            row = recording.rows.at(address)
            if row is not None:
                return record(recording, row)
            logged = recording.rows.logged_at(address)
            if logged is not None:
                return transaction(recording, logged)
        return None

    def last_of(self, address: int) -> Optional[Transaction]:
        """Return the newest transaction of a block that began there, else of one that held the address."""
        for recording in self.recordings:
            row = next(iter(recording.rows.logged_of(address, 1)), None) or recording.rows.logged_holding(address)
            if row is not None:
                return transaction(recording, row)
        return None

    def last_freed(self, address: int) -> Optional[Transaction]:
        """Return the newest free of a block that held the address, or None."""
        for recording in self.recordings:
            row = recording.rows.freed_holding(address)
            if row is not None:
                return transaction(recording, row)
        return None

    def all(self) -> Iterator[Record]:
        """Yield every record, by address."""
        for recording in self.recordings:
            at = 0
            while rows := recording.rows.records(at, _BATCH):
                yield from (record(recording, row) for row in rows)
                at = rows[-1].address + 1

    def log(self, freed: Optional[bool] = None) -> Iterator[Transaction]:
        """Yield the transactions, newest first. `freed` chooses frees or allocations alone."""
        for recording in self.recordings:
            before = 1 << 64
            while rows := recording.rows.log(before, _BATCH, freed):
                yield from (transaction(recording, row) for row in rows)
                before = rows[-1].sequence

    def newest(self, freed: bool, threads: str, number: Optional[int], most: Optional[int] = None) -> RecentEvents:
        """Return what the threads of that name allocated and is still live, or what they freed."""
        found = RecentEvents()
        for recording in self.recordings:
            numbers = recording.threads_called(threads, number)
            count, size, rows = recording.rows.newest(freed, numbers, _EVERYTHING if most is None else max(0, most))
            found.count += count
            found.bytes += size
            found.events.append((recording, rows))
        return found

    def users(self, split: str = "") -> list[StackUsage]:
        """Return who holds memory, by stack, the biggest first. `split` by "thread" or "size" splits each stack."""
        found = [
            StackUsage(
                recording,
                row.stack,
                row.count,
                row.bytes,
                row.likely_count,
                row.likely_bytes,
                row.least,
                row.most,
                record(recording, row.oldest),
                row.part,
            )
            for recording in self.recordings
            for row in recording.rows.users(split)
        ]
        return sorted(found, key=lambda user: -user.likely_bytes)


def record(recording: Recording, row: RecordRow) -> Record:
    """Return the record that a row of the engine stands for."""
    return Record(recording, row.at, row.address, row.size, row.time, recording.thread(row.thread), row.stack)


def transaction(recording: Recording, row: LogRow) -> Transaction:
    """Return the transaction that a row of the engine stands for."""
    return Transaction(
        recording,
        row.at,
        row.sequence,
        row.freed,
        row.address,
        row.size,
        row.time,
        recording.thread(row.thread),
        row.stack,
        (row.contents, row.contents_size) if row.contents else None,
        row.alloc_time,
        recording.thread(row.alloc_thread),
        row.alloc_stack,
    )


def _history(recording: Recording, address: int, before: Optional[int]) -> Iterator[Transaction]:
    rows = recording.rows.logged_of(address, _MOST_HISTORY)
    return (transaction(recording, row) for row in rows if before is None or row.sequence < before)
