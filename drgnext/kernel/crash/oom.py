"""Read what the log says of a machine or a memory cgroup without memory: who has it, and the limit.

The first line names only the task that wanted memory last (dump_header in mm/oom_kill.c).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Optional

INVOKED = re.compile(r"invoked oom-killer")
_COLUMNS = re.compile(r"^\[ +pid +\] +uid +tgid total_vm +rss\b")
_ROW = re.compile(r"^\[ *(\d{1,10})\]((?: +-?\d{1,20}){1,20}) (.+)$")
_USAGE = re.compile(r"^memory: (usage \d+kB, limit \d+kB)")
_GROUP = re.compile(r"^Memory cgroup stats for (\S+):")
# Behind a kill: the group whose limit was hit, and the victim.
_KILL = re.compile(r"^oom-kill:constraint=\w+,.*?,oom_memcg=([^,]+),")
_LARGEST, _OF_GROUP = "the largest task is ", "memory cgroup "


class _Task(NamedTuple):
    """A row of the table of tasks: pages that are resident, and those that are swapped out."""

    name: str
    pid: int
    resident: int
    swapped: int


def oom_details(lines: Sequence[str]) -> tuple[str, ...]:
    """Return a line for the task with most memory, and one for the memory cgroup. What is not there has no line.

    ``lines`` begin with the one that names who invoked the OOM killer.
    """
    if not lines or not INVOKED.search(lines[0]):
        return ()
    found = []
    largest = _largest(lines)
    if largest is not None:
        swapped = f" and {largest.swapped} in swap" if largest.swapped else ""
        found.append(f"{_LARGEST}{largest.name}, pid {largest.pid}: {largest.resident} pages{swapped}")
    usage = next((m[1] for m in map(_USAGE.match, lines) if m), None)
    group = next((m[1] for line in lines for m in (_GROUP.match(line), _KILL.match(line)) if m), None)
    if usage is not None or group is not None:
        found.append(f"{_OF_GROUP}{group or '(not named)'}{f': {usage}' if usage else ''}")
    return tuple(found)


def oom_lines(details: Sequence[str]) -> list[str]:
    """Return those of a panic's details that oom_details() made."""
    return [line for line in details if line.startswith((_LARGEST, _OF_GROUP))]


def _largest(lines: Sequence[str]) -> Optional[_Task]:
    """Return the task with most pages in the table, or None if there is no table.

    Kernels since 6.8 have more columns. So the heading says which is which. It has the name last, which may have
    spaces.
    """
    columns: list[str] = []
    best: Optional[_Task] = None
    for line in lines:
        if _COLUMNS.match(line):
            columns = re.sub(r"^\[ +pid +\]", "", line).split()[:-1]
            continue
        row = _ROW.match(line) if columns else None
        if row is None:
            continue
        cells = dict(zip(columns, row[2].split()))
        if len(row[2].split()) != len(columns):
            continue
        task = _Task(row[3].strip(), int(row[1]), int(cells.get("rss", 0)), int(cells.get("swapents", 0)))
        if best is None or task.resident + task.swapped > best.resident + best.swapped:
            best = task
    return best
