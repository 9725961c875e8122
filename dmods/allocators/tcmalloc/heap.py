"""One tcmalloc of a process: who holds a free block, its figures, what is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Optional

from dmods import _engine
from dmods.allocators.protocol import Heap
from dmods.allocators.tcmalloc import NAME
from dmods.allocators.tcmalloc.own import own_blocks
from dmods.allocators.tcmalloc.samples import notes_of, samples_of
from dmods.allocators.tcmalloc.walked import near
from dmods.allocators.vocabulary import Problem
from dmods.base.dataclass import dataclass, field
from dmods.process.addresses import module_at
from dmods.target import Module, Target

_FAULTS = {
    "missing": "the record is not in the dump",
    "pages": "the record does not name the page that leads to it",
    "bits": "its location or its size class is not valid",
    "end": "the page map does not lead back to it from its last page",
    "size": "it is not as long as its size class demands",
    "table": "a table of the page map lies within another, or there are too many",
}
_STATES = ("in use", "free", "free, and given back to the kernel")


@dataclass
class Tcmalloc(Heap):
    """A heap of tcmalloc. ``target`` is the process."""

    inner: Optional[_engine.Tcmalloc] = None
    target: Optional[Target] = None
    problems: list[Problem] = field(default_factory=list)
    leaves_links: bool = True

    def where(self, address: int) -> Optional[str]:
        """Return what an address is that is in no block: the rest of a span, a free span, tcmalloc's own memory."""
        if self.inner is None:
            return None
        span = self.inner.span(address)
        if span is None:
            return "in memory that tcmalloc keeps for its own records"
        start, size, _size_class, location = span
        if location == 0:
            return f"in the rest of the span {start:#x}-{start + size:#x}, behind its last object"
        return f"in the span {start:#x}-{start + size:#x}, which is {_STATES[location]}"

    def holder(self, address: int) -> Optional[str]:
        """Return the list that holds the free object, in words."""
        if self.inner is None or self.target is None:
            return None
        found = self.inner.holder(self.target.image(), address)
        return self._named(*found) if found is not None else "on no list that could be followed"

    def _named(self, kind: str, number: int) -> str:
        if kind == "span":
            return "in the list of its span"
        if kind == "transfer":
            return "in the central cache"
        tid = self._threads.get(number)
        return f"in the cache of thread {tid}" if tid is not None else f"in the cache {number:#x} of an unknown thread"

    @cached_property
    def _threads(self) -> dict[int, int]:
        """Return the thread whose thread-local memory points to each cache."""
        found: dict[int, int] = {}
        if self.inner is None or self.target is None:
            return found
        caches = sorted(address for address, _count, _bytes in self.inner.caches)
        image, word = self.target.image(), self.target.arch.word
        for thread in self.target.threads():
            around = near(self.target, thread.registers.get(self.target.arch.thread_pointer, 0))
            places = _engine.find_pointers(image, around, word, [(at, at + 1) for at in caches], 1)
            for address, some in zip(caches, places):
                if some:
                    found.setdefault(address, thread.tid)
        return found

    def free_memory(self) -> Sequence[tuple[int, int]]:
        """Return the spans that are not in use."""
        return self.inner.free_spans() if self.inner is not None else ()

    def statistics(self) -> list[tuple[str, int]]:
        """Return the sums that MALLOCSTATS prints as well."""
        if self.inner is None:
            return []
        in_use, free, returned = self.inner.span_bytes
        in_spans, in_transfer, in_caches = self.inner.free
        return [
            ("bytes of spans in use", in_use),
            ("bytes of free spans", free),
            ("bytes of free spans given back to the kernel", returned),
            ("bytes in the spans' lists", in_spans),
            ("bytes in the transfer cache", in_transfer),
            ("bytes in threads' caches", in_caches),
            ("threads' caches with objects", sum(1 for _address, count, _bytes in self.inner.caches if count)),
            ("sampled blocks", self.inner.sampled),
        ]


def heap_of(target: Target, inner: _engine.Tcmalloc) -> Tcmalloc:
    """Return the heap of the tcmalloc that the engine walked."""
    module = module_at(target, inner.central[0])
    made = Tcmalloc(NAME, inner.owned, inner.slots(), inner=inner, target=target)
    made.serves_malloc = _serves(target, module)
    # gperftools defines malloc() in the module that holds its central cache: a library, or the program itself.
    made.home = inner.central[0]
    made.own = own_blocks(target, inner, module)
    busy = _is_busy(target, module)
    for problem in inner.problems:
        # A thread that is inside tcmalloc has changed a list, and not yet its count.
        if problem[0] != "count" or not busy:
            made.problems.append(_problem(inner, problem))
    for fault, record, at in inner.faults:
        made.problems.append(Problem(record, f"the span of page {at:#x} is not read: {_FAULTS[fault]}"))
    made.notes.extend(_notes(inner, made, busy))
    made.notes.extend(notes_of(samples_of(target).get(inner.central[0]), inner.sampled))
    return made


def _notes(inner: _engine.Tcmalloc, made: Tcmalloc, busy: bool) -> Iterator[str]:
    counts = sum(kind == "count" for kind, *_rest in inner.problems)
    if inner.fault_count:
        yield (
            f"{_counted(inner.fault_count, 'span')} of tcmalloc cannot be right: the blocks there are not known, and "
            "what they point to counts as reachable; `heapcheck` tells more"
        )
    if made.problems and inner.problem_count > (counts if busy else 0):
        yield (
            f"{_counted(inner.problem_count, 'damaged free list')} of tcmalloc: freed blocks beyond may be reported as "
            "leaked; `heapcheck` tells more"
        )
    elif counts and busy:
        changed = _counted(counts, "free list")
        yield f"a thread was inside tcmalloc: {changed} may have been in change, and a block of it may be reported"
    if not inner.caches:
        yield "no thread's cache of tcmalloc was recognized: freed blocks in one may be reported as leaked"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _problem(inner: _engine.Tcmalloc, problem: tuple[str, tuple[str, int], int, int, int]) -> Problem:
    kind, place, size_class, source, to = problem
    size = inner.sizes[size_class]
    lists = {"span": "the list of the span", "transfer": "the transfer cache", "cache": "the cache of a thread"}
    named = f"{lists[place[0]]} {place[1]:#x}" if place[0] != "transfer" else lists[place[0]]
    where = f"{named}, of objects of {size} bytes"
    link = f"the free object {source:#x}" if source else "its head"
    address = source or to or place[1]
    if kind == "count":
        return Problem(place[1], f"{where}, has {to} objects where {source} are counted")
    if kind == "slots":
        return Problem(inner.central[0] + place[1] * inner.central[1], f"{where}, claims more slots than there are")
    if kind == "missing":
        return Problem(address, f"{where}: {link} is not in the dump")
    if kind == "free":
        return Problem(address, f"{where}: {link} links to {to:#x}, which is free already (a double free, or a cycle)")
    return Problem(address, f"{where}: {link} links to {to:#x}, where no object of that size begins")


def _serves(target: Target, module: Optional[Module]) -> bool:
    """Return whether malloc() of the process is that of the module. An auditor passes every call on."""
    malloc = target.lookup("malloc")
    other = module_at(target, malloc.address) if malloc is not None else None
    return other is None or module is None or other.path == module.path or "libdmods_audit" in other.name


def _is_busy(target: Target, module: Optional[Module]) -> bool:
    """Return whether a thread was in code of the module that holds tcmalloc."""
    pc = target.arch.pc
    return module is not None and any(
        any(thread.registers.get(pc, 0) in part for part in module.ranges) for thread in target.threads()
    )
