"""Who held the memory when the OOM killer came, and who holds it now: tables of `ps`."""

from __future__ import annotations

from collections.abc import Sequence

from dmods.report import Column, Schema, Table, Value
from drgnext.kernel.crash.oom import OomKill, oom_kills
from drgnext.kernel.crash.whole_log import read_log
from drgnext.kernel.system.memcgs import MemoryGroup, group_of, memory_groups, narrowest
from drgnext.kernel.system.processes import Process, Processes

_SHOWN = 5  # calls of the OOM killer
_HOLDERS = 3

KILLS = Schema(
    "oom_kills",
    "a call of the OOM killer",
    (
        Column("time", title="TIME", about="seconds since boot, as text"),
        Column("invoker", width=15, about="who asked for memory"),
        Column("invoker_pid", "count", title="PID", null="it is not known"),
        Column("victim", width=15, null="nobody was killed"),
        Column("victim_pid", "count", title="PID", null="nobody was killed"),
        Column("freed", "size", title="IT HAD", null="it is not known"),
        Column("group", title="LIMIT OF", about="the memory cgroup whose limit was hit, or `the machine`"),
        Column("largest", title="LARGEST THEN", null="the log does not list the tasks"),
        Column("largest_pid", "count", title="PID", null="the log does not list the tasks"),
        Column("largest_bytes", "size", title="IT HAD", null="the log does not list the tasks"),
    ),
    when="where the log has one",
)
HOLDERS = Schema(
    "holders",
    "a process that has much memory in the dump",
    (
        Column("pid", "count", width=7),
        Column("name", width=15),
        Column("bytes", "size", title="HAS", about="memory and swap"),
        Column("group", title="MEMORY CGROUP", null="it is not known"),
        Column("limit_of", title="LIMIT OF", null="no memory cgroup above it has a limit"),
        Column("limit", "size", title="LIMIT", null="no memory cgroup above it has a limit"),
        Column("used", "size", title="USED", null="no memory cgroup above it has a limit"),
    ),
    when="where the log has a call of the OOM killer",
)


def oom_tables(processes: Processes, found: Sequence[Process]) -> list[Table]:
    """Return the calls of the OOM killer that the log has, and who holds memory now; nothing if it was not called."""
    reader = processes.reader
    records, _notes = read_log(reader.prog)
    kills = oom_kills(records)
    if not kills:
        return []
    groups = memory_groups(reader, processes.threads)
    most = sorted((one for one in found if one.task.pid == one.task.tgid), key=lambda one: -(one.rss + one.swap))
    holders = [_holder(processes, one, groups) for one in most[:_HOLDERS] if one.rss + one.swap]
    rows = [_kill(kill, processes.page) for kill in kills[-_SHOWN:]]
    hidden = len(kills) - len(rows)
    footer = [f"{hidden} more before: dmesg -g oom-killer"] if hidden else []
    return [
        KILLS.table(rows, title="calls of the OOM killer, as the log tells them", footer=footer),
        HOLDERS.table(holders, title="who holds most memory in the dump, and the lowest limit above it"),
    ]


def _kill(kill: OomKill, page: int) -> tuple[Value, ...]:
    pages = kill.largest_pages
    return (
        f"{round(kill.time * 1e9) // 1000 / 1e6:.6f}",  # cut off as dmesg does
        *(kill.invoker, kill.invoker_pid, kill.victim or None, kill.victim_pid, kill.freed),
        *(kill.group or "the machine", kill.largest or None, kill.largest_pid),
        pages * page if pages is not None else None,
    )


def _holder(processes: Processes, one: Process, groups: Sequence[MemoryGroup]) -> tuple[Value, ...]:
    own = group_of(processes.reader, processes.threads, one.task, groups)
    limit = narrowest(own, groups) if own is not None else None
    return (
        *(one.task.pid, one.task.comm, one.rss + one.swap, own.path if own is not None else None),
        limit.path if limit is not None else None,
        (limit.limit or 0) * processes.page if limit is not None else None,
        limit.current * processes.page if limit is not None else None,
    )
