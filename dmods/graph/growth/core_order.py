"""Tell in which order cores were taken, how much time is between them, and whether they are of one program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Optional

from dmods.graph.growth.same_process import difference
from dmods.heap.heap import ProcessHeap
from dmods.modules.auxv import AT_ENTRY, AT_PHDR
from dmods.target import Module, Target

_NS_PER_HOUR = 3600 * 10**9
_LEAST_NS = 10**9  # a rate per hour from less than a second says nothing


def wrong_order(names: Sequence[str], heaps: Sequence[ProcessHeap]) -> Optional[str]:
    """Return a sentence that says that the cores are not in the order in which they were taken, or None.

    A core holds no time of its own. CPU times in NT_PRSTATUS do not help: gdb's gcore writes zeros there, and the
    kernel writes only one core of a process. The allocation records tell the order for sure. The times of the files
    are weaker: a copy may have the time of the copying. Cores of different runs may stand in any order.
    """
    if any(difference(heap.target, heaps[-1].target) is not None for heap in heaps[:-1]):
        return None
    events = [newest_event(heap) for heap in heaps]
    if _all_known(events):
        order = _sorted(events)
        if order == list(range(len(heaps))):
            return None
        says = "the cores are not in the order in which they were taken: by their allocation records it is {}"
    else:
        times = [_written(heap.target) for heap in heaps]
        order = _sorted(times)
        if not _all_known(times) or order == list(range(len(heaps))):
            return None
        says = "the cores are perhaps not in the order in which they were taken: by the times of the files it is {}"
    listed = ", ".join(names[place] for place in order)
    return f"{says.format(listed)}. growth wants the oldest first and the newest last"


def _all_known(times: Sequence[Optional[int]]) -> bool:
    return None not in times and len(set(times)) > 1


def _sorted(times: Sequence[Optional[int]]) -> list[int]:
    """Return the places of the cores, the oldest first. Cores of the same time stay in the order of the user."""
    return sorted(range(len(times)), key=lambda place: times[place] or 0)


def _written(target: Target) -> Optional[int]:
    """Return when the core was written, in ns, or None for a live process."""
    try:
        return os.stat(target.path).st_mtime_ns if target.path is not None else None
    except OSError:
        return None


def other_program(base: Target, last: Target) -> Optional[str]:
    """Return how the program of a core differs from that of the last, or the first library that differs, or None.

    Cores of one process are not looked at: a file of theirs may be known in one core only.
    """
    if difference(base, last) is None:
        return None
    ours, theirs = program_module(last), program_module(base)
    if ours is not None and theirs is not None and _differ(theirs, ours):
        if theirs.name != ours.name:
            return f"it is of another program: {theirs.name}, not {ours.name}"
        return f"it is of another build of {ours.name} (build-id {_id(theirs)}, not {_id(ours)})"
    libraries = {module.path: module for module in last.modules() if module is not ours}
    for module in base.modules():
        other = libraries.get(module.path)
        if other is not None and _differ(module, other):
            return (
                f"its {module.name} is another build (build-id {_id(module)}, not {_id(other)}): "
                "it is of another machine, or the library was updated"
            )
    return None


def program_module(target: Target) -> Optional[Module]:
    """Return the module of the program, or None where the auxiliary vector does not lead to it."""
    for address in (target.auxv.get(AT_PHDR), target.auxv.get(AT_ENTRY)):
        for module in target.modules():
            if address is not None and any(address in piece for piece in module.ranges):
                return module
    return None


def _differ(one: Module, other: Module) -> bool:
    if one.build_id is not None and other.build_id is not None:
        return one.build_id != other.build_id
    return one.name != other.name


def _id(module: Module) -> str:
    return (module.build_id or "unknown")[:12]


def hours_between(first: ProcessHeap, last: ProcessHeap) -> Optional[float]:
    """Return the hours from the newest event that the first core knows to that of the last, or None.

    A core has no time of its own: NT_PRSTATUS has CPU times only. Both must be of one process.
    """
    before, after = newest_event(first), newest_event(last)
    if before is None or after is None or after - before < _LEAST_NS:
        return None
    return (after - before) / _NS_PER_HOUR


def newest_event(heap: ProcessHeap) -> Optional[int]:
    """Return the time of the newest allocation, or of the newest logged free, in ns of CLOCK_MONOTONIC."""
    times: list[int] = []
    for recording in heap.records.recordings:
        threads = list(range(len(recording.threads)))
        for freed in (False, True):
            _count, _size, rows = recording.rows.newest(freed, threads, 1)
            times.extend(row.time for row in rows if row.time > 0)
    return max(times, default=None)
