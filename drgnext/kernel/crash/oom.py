"""Read what the log says of a machine or a memory cgroup without memory: who has it, and the limit.

The first line names only the task that wanted memory last (dump_header in mm/oom_kill.c).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from drgnext.kernel.crash.records import Record

INVOKED = regex(r"invoked oom-killer")
_COLUMNS = regex(r"^\[ +pid +\] +uid +tgid total_vm +rss\b")
_ROW = regex(r"^\[ *(\d{1,10})\]((?: +-?\d{1,20}){1,20}) (.+)$")
_USAGE = regex(r"^memory: (usage \d+kB, limit \d+kB)")
_GROUP = regex(r"^Memory cgroup stats for (\S+):")
# Behind a kill: the group whose limit was hit, and the victim.
_KILL = regex(r"^oom-kill:constraint=\w+,.*?,oom_memcg=([^,]+),")
_INVOKER = regex(r"^(.{1,32}?) invoked oom-killer: ")
_PID = regex(r"^CPU: \d{1,6} (?:UID: \d{1,10} )?PID: (\d{1,10}) Comm: ")
_KILLED = regex(
    r"^(?:Out of memory|Out of memory \(oom_kill_allocating_task\)|Memory cgroup out of memory): "
    r"Killed process (\d{1,10}) \((.{0,32}?)\),? total-vm:\d{1,20}kB, "
    r"anon-rss:(\d{1,20})kB, file-rss:(\d{1,20})kB(?:, shmem-rss:(\d{1,20})kB)?"
)
_LARGEST, _OF_GROUP = "the largest task is ", "memory cgroup "


class _Task(NamedTuple):
    """A row of the table of tasks: pages that are resident, and those that are swapped out."""

    name: str
    pid: int
    resident: int
    swapped: int


class OomKill(NamedTuple):
    """A call of the OOM killer. A pid or size of None was not in the log.

    ``victim`` is "" where the kernel did not kill a task, as before a panic. ``freed`` are the bytes that the victim
    had. ``group`` is the memory cgroup whose limit was hit, "" for the machine. ``largest`` is the task that had most
    pages then.
    """

    time: float
    invoker: str
    invoker_pid: Optional[int]
    victim: str = ""
    victim_pid: Optional[int] = None
    freed: Optional[int] = None
    group: str = ""
    largest: str = ""
    largest_pid: Optional[int] = None
    largest_pages: Optional[int] = None


def oom_kills(records: Sequence[Record]) -> list[OomKill]:
    """Return the calls of the OOM killer in the log, oldest first. What programs wrote into the log does not count."""
    own = [record for record in records if record.facility == 0]
    starts = [number for number, record in enumerate(own) if _INVOKER.match(record.text)]
    return [_kill(own[start:end]) for start, end in zip(starts, [*starts[1:], len(own)])]


def _kill(records: Sequence[Record]) -> OomKill:
    """Return what the records say that begin with the invoker's."""
    invoker = _INVOKER.match(records[0].text)
    found = OomKill(records[0].time, invoker[1] if invoker else "", None)
    lines = [records[0].text]
    for record in records[1:]:
        lines.append(record.text)
        pid, group = _PID.match(record.text), _GROUP.match(record.text) or _KILL.match(record.text)
        if pid and found.invoker_pid is None:
            found = found._replace(invoker_pid=int(pid[1]))
        if group:
            found = found._replace(group=group[1])
        killed = _KILLED.match(record.text)
        if killed:
            freed = sum(int(size or 0) for size in killed.groups()[2:]) << 10
            found = found._replace(victim=killed[2], victim_pid=int(killed[1]), freed=freed)
        if killed or record.text.startswith("Kernel panic"):
            break
    largest = _largest(lines)
    if largest is None:
        return found
    pages = largest.resident + largest.swapped
    return found._replace(largest=largest.name, largest_pid=largest.pid, largest_pages=pages)


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
