"""Read CPython's garbage collector: which objects it tracks, and which unreachable ones it would free.

The collector links all containers in lists. These links keep nothing alive, so they are no pointers here: otherwise no
container could ever be leaked. What the collector would free at its next run is no leak.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from dmods._engine import CollectorLinks, UnusedWords
from dmods.allocators.protocol import Heap
from dmods.base.cached import cached
from dmods.base.dataclass import dataclass, field
from dmods.base.ranges import Ranges
from dmods.process.addresses import module_at
from dmods.runtimes.python import STATE
from dmods.runtimes.python.find import find_python
from dmods.target import Target

LINKS = 16  # bytes of a PyGC_Head
_THREAD_STATE = 1024  # bytes that hold a PyThreadState (3.14: 900, 3.15: 888)
_PYMALLOC = "pymalloc"


@dataclass(frozen=True)
class Collector:
    """The collector of a process. ``links`` is None where there is no CPython, or its lists are damaged.

    ``dead`` is memory whose words keep nothing alive: the heads of the lists, the parts of Python's frame stacks where
    no frame is, what is not in use of the arrays of free objects, constants, and what NumPy left in its records.
    """

    target: Target
    minor: int = 0
    links: Optional[CollectorLinks] = None
    notes: list[str] = field(default_factory=list)
    dead: list[tuple[int, int]] = field(default_factory=list)

    def garbage(self, unreachable: Iterable[tuple[int, int]], unused: Optional[UnusedWords]) -> list[int]:
        """Return the objects in the unreachable blocks (address, bytes) that the collector would free.

        ``unused`` are words that are no references.
        """
        if self.links is None:
            return []
        return self.links.garbage(self.target.image(), list(unreachable), self.minor, unused)


@cached
def find_collector(target: Target) -> Collector:
    """Return the collector of the process."""
    python = find_python(target).python
    if python is None:
        return Collector(target)
    from dmods.runtimes.python.frame_stacks import unused_stacks
    from dmods.runtimes.python.free_slots import old_slots
    from dmods.runtimes.python.numpy_records import old_records

    minor = python.layout.version[1]
    states = [(at, at + STATE) for at in python.interpreters]
    interpreter, data = _file_of(target, python.runtime)
    constants = UnusedWords.in_data(target.image(), minor, interpreter, data)
    links = CollectorLinks(target.image(), states, minor)
    proven = links.broken is None and len(links) > 0
    dead = unused_stacks(python) + old_slots(python, links if proven else None) + constants
    dead += old_records(target)
    if not proven:
        why = f"damaged at {links.broken:#x}" if links.broken is not None else "not found"
        note = f"the lists of Python's collector are {why}: leaked containers count as reachable"
        return Collector(target, minor, notes=[note], dead=dead)
    return Collector(target, minor, links, dead=dead + [(head, head + LINKS) for head in links.heads])


def find_unused(
    target: Target,
    heaps: Sequence[Heap],
    stacks: Sequence[tuple[int, int]],
    registers: Sequence[int],
    chunks: Sequence[tuple[int, int]],
) -> list[UnusedWords]:
    """Return the words in blocks in use that CPython does not use, [] where there is no CPython.

    ``stacks`` and ``registers`` are those of all threads, without dead memory below stack pointers. ``chunks`` are
    glibc's stretches of chunks. With PYTHONMALLOC=malloc all objects lie there.
    """
    python = find_python(target).python
    slots = [heap.slots for heap in heaps if heap.name == _PYMALLOC]
    if python is None:
        return []
    parts, writable = _file_of(target, python.runtime)
    image = target.image()
    threads = Ranges((thread.address, thread.address + _THREAD_STATE) for thread in python.threads)
    heads = Ranges([*writable, *((at, at + STATE) for at in python.interpreters)])
    return [
        UnusedWords(
            image,
            slots,
            python.layout.version[1],
            find_collector(target).links,
            parts,
            [part for start, end in threads.without(heads) for part in image.covered(start, end)],
            list(stacks),
            list(threads),
            list(registers),
            python.frame_objects(),
            list(chunks),
        )
    ]


def _file_of(target: Target, runtime: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the ranges of the file that has CPython's runtime, and those of its data."""
    module = module_at(target, runtime)
    ranges = module.ranges if module is not None else ()
    parts = [(part.start, part.end) for part in ranges]
    return parts, [(part.start, part.end) for part in ranges if "w" in part.flags]
