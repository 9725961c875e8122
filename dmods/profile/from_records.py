"""A profile out of allocation records: who allocated the blocks that are in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods import _engine
from dmods.base.dataclass import dataclass
from dmods.base.progress import Progress
from dmods.graph.owners.heap_owners import Owners, find_owners
from dmods.graph.types.block_kinds import Types, find_types
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.profile.code import Locations
from dmods.profile.model import UNKNOWN, Label, Profile, Raw, Sample
from dmods.records.callers import Callers
from dmods.records.model import RecordedThread, Recording, Stack
from dmods.target import Target

_NONE = (1 << 32) - 1  # what the engine does not know of a block
_ANY_SIZE = (1 << 64) - 1
_STATES = {0: "held", 1: "freed", 2: "leaked", 3: "leaked", 4: "allocator"}

_Of = tuple[int, int, Optional[int], int, int]  # what makes labels: thread, size, state, kind, owners


@dataclass
class Details:
    """The heap's own view of each block: this takes as long as findleaks, types and owners together."""

    heap: ProcessHeap
    types: Types
    owners: Owners

    @classmethod
    def of(cls, target: Target) -> Details:
        """Return the details of the target's blocks."""
        heap = find_heap(target)
        return cls(heap, find_types(target), find_owners(target))

    @property
    def allocator(self) -> Optional[str]:
        """Return the only allocator whose blocks are known, or None where there are two."""
        return only_allocator(self.heap)

    def labels(self, state: Optional[int], kind: int, owners: int) -> Iterator[Label]:
        """Yield the labels of a block."""
        if state is not None:
            yield "state", _STATES[state]
        if kind != _NONE:
            yield "type", self.types.name(kind).text
        if owners != _NONE:
            yield "owner", self.owners.line_of(owners).name


def only_allocator(heap: ProcessHeap) -> Optional[str]:
    """Return the allocator of all blocks of a heap, or None where there are two."""
    names = {one.allocator.split()[-1] for one in heap.heaps if one.is_used and one.serves_malloc}
    return names.pop() if len(names) == 1 else None


def from_recording(
    target: Target, recording: Recording, details: Optional[Details] = None, all_frames: bool = False
) -> Profile:
    """Return the profile of what one recorder noted. Samples are scaled here, and nowhere else.

    The innermost frames that belong to the allocator itself are left out unless `all_frames` asks for them.
    """
    locations, callers = Locations(target), Callers(target)
    rows = recording.sized
    with Progress("grouping the records") as bar:
        found = _engine.group_records(
            rows,
            details.heap.marks.engine if details is not None else None,
            details.types.kinds if details is not None else None,
            details.owners.engine if details is not None else None,
            lambda done: bar.update(done, 0),
        )
    profile = Profile(source=recording.name, period=recording.mean or 1)
    profile.jemalloc, profile.unbiased = recording.allocator == "jemalloc", recording.unbiased
    stacks: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    known: dict[_Of, tuple[Label, ...]] = {}  # samples share their labels: there are 100,000 of them
    found.reverse()
    sums = [0, 0]
    while found:  # each row is given back as soon as it is a sample
        key, thread, size, state, kind, owners, count, total, likely_count, likely_bytes = found.pop()
        if key not in stacks:
            stack = Stack(*rows.stack(key)) if key != _NONE else Stack((), True)
            first = 0 if all_frames else _first(stack, callers)
            # jeprof knows jemalloc's own frames. No reader knows those of another recorder.
            own = profile.jemalloc
            stacks[key] = (_places(stack, first, locations), _addresses(stack, 0 if own else first, own))
        places, addresses = stacks[key]
        of = (thread, size, state, kind, owners)
        labels = known.get(of)
        if labels is None:
            labels = known[of] = tuple(_labels(recording, details, of))
        values = (round(likely_count), round(likely_bytes))
        profile.samples.append(Sample(places, values, labels, Raw(addresses, count, total)))
        sums[0] += count
        sums[1] += total
    profile.locations, profile.mappings = locations.all, locations.finished()
    if _NONE in stacks:
        profile.notes.append("there are too many different stacks: the last of them are counted without frames")
    if recording.mean:
        profile.comments.append(
            f"scaled from {sums[0]} samples of {sums[1]} bytes, one in {recording.mean} bytes (Poisson)"
        )
        profile.notes.append(
            f"only samples were recorded, one in {recording.mean} bytes: counts and bytes are estimates by their weight"
        )
    profile.notes.extend(recording.notes)
    if details is not None:
        profile.notes.extend(note for note in details.owners.notes if note not in profile.notes)
    return profile


def _labels(recording: Recording, details: Optional[Details], of: _Of) -> Iterator[Label]:
    """Yield the labels of a sample."""
    thread, size, state, kind, owners = of
    if size != _ANY_SIZE:
        yield "bytes", size
    if thread != _NONE:
        yield "thread", thread_name(recording.thread(thread))
    allocator = recording.allocator or (details.allocator if details is not None else None)
    if allocator is not None:
        yield "allocator", allocator
    if details is not None:
        yield from details.labels(state, kind, owners)


def thread_name(thread: RecordedThread) -> str:
    """Return a thread as "1603 (worker)"."""
    if thread.tid is None:
        return thread.name or UNKNOWN
    return f"{thread.tid} ({thread.name})" if thread.name else str(thread.tid)


def _first(stack: Stack, callers: Callers) -> int:
    """Return how many frames belong to the allocator, from the innermost on. It is 0 where all of them do."""
    return next((place for place, frame in enumerate(stack.frames) if not callers.is_allocator(frame)), 0)


def _places(stack: Stack, first: int, locations: Locations) -> tuple[int, ...]:
    """Return the locations of a stack from frame `first` on, leaf first."""
    places = [locations.at(*frame) for frame in stack.frames[first:]]
    return (*places, locations.truncated()) if stack.truncated else (*places,)


def _addresses(stack: Stack, first: int, in_malloc: bool) -> tuple[int, ...]:
    """Return the addresses of a stack from frame `first` on, for a text with addresses.

    Its readers subtract 1 from all but the innermost address (jeprof, FixCallerAddresses): they take that one for an
    address in malloc. Unless it is one (`in_malloc`), it must lie in the call already.
    """
    addresses = [address for address, _exact in stack.frames[first:]]
    if addresses and not in_malloc and not stack.frames[first][1]:
        addresses[0] -= 1
    return tuple(addresses)
