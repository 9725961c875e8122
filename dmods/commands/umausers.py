"""Show who holds the memory: live bytes by the stack that allocated them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Callable, Optional

from dmods.base.shapes import STACK_COLUMNS
from dmods.base.sizes import human_size
from dmods.command import Argument, Command, positive
from dmods.commands._records import CALLER_ARGUMENTS, LINES, SOURCE, callers_asked, stack_table, stack_values
from dmods.records.callers import UNKNOWN, Callers, source_of
from dmods.records.model import Stack, StackUsage
from dmods.records.sources import require_records
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

_TOP = 10
_DEPTH = 5
_INDENT = 9  # mdb's tab and space
_RULE = "-" * 72
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SUMS = (
    Column("bytes", "bytes", width=12),
    Column("count", "count", width=8),
    Column("percent", "percent", width=5, title="%LIVE"),
    Column("stacks", "count"),
)
_EXACT = (
    Column("records", "count", hidden=True),
    Column("recorded_bytes", "bytes", hidden=True),
    Column("least", "bytes", hidden=True),
    Column("most", "bytes", hidden=True),
    Column("oldest", "address", hidden=True),
)
_KEYS = {
    "stack": Column("caller"),
    "function": Column("function"),
    "file": Column("file"),
    "library": Column("library"),
    "thread": Column("thread"),
    "size": Column("size", "bytes"),
}


@dataclass
class Group:
    """Users that are shown in one row, sorted by their bytes. ``biggest`` is the one with the most bytes."""

    key: Value
    biggest: StackUsage
    users: list[StackUsage] = field(default_factory=list)
    stacks: set[tuple[int, int]] = field(default_factory=set)

    @property
    def bytes(self) -> float:
        """Return the bytes of all users, estimated where allocations were sampled."""
        return sum(user.likely_bytes for user in self.users)

    @property
    def count(self) -> float:
        """Return the blocks of all users, estimated where allocations were sampled."""
        return sum(user.likely_count for user in self.users)

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the least and the largest size that was asked for."""
        return min(user.least for user in self.users), max(user.most for user in self.users)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the users of memory, the biggest first."""
    found = require_records(target)
    callers = callers_asked(target, args, lines=args.lines)
    users = found.users(args.by if args.by in {"thread", "size"} else "")
    everything = sum(user.likely_bytes for user in users)
    if args.what is not None:
        address = target.evaluate(args.what)
        users = [user for user in users if callers.passes(user.stack, address)]
    groups = _group(users, _key_of(target, callers, args.by, args.depth))
    shown = [group for group in groups if group.bytes >= args.min][: None if args.all else args.top]
    report = Report(notes=found.notes)
    means = {recording.mean for recording in found.recordings if recording.mean}
    if means:
        report.notes.append(
            f"only samples were recorded, one in {max(means)} bytes: counts and bytes are estimates by their weight"
        )
    by_stack = args.by == "stack"
    rows = [_row(callers, group, everything, by_stack) for group in shown]
    source = (replace(SOURCE, hidden=not args.lines),) if by_stack else ()
    columns = (*_SUMS, _KEYS[args.by], *source, *_EXACT, *(STACK_COLUMNS if by_stack else ()))
    report.tables.append(Table("users", columns, rows, footer=_footer(groups, shown, everything)))
    for number, group in enumerate(shown if by_stack else (), 1):
        title = _headline(group)
        report.tables.append(stack_table(callers, group.biggest.stack, f"stack {number}", title=title, indent=_INDENT))
    report.totals = {
        "users": len(groups),
        "stacks": len({stack for group in groups for stack in group.stacks}),
        "bytes": round(sum(group.bytes for group in groups)),
        "count": round(sum(group.count for group in groups)),
        "live_bytes": round(everything),
        "shown_bytes": round(sum(group.bytes for group in shown)),
        "estimated": int(bool(means)),
    }
    return report


def _key_of(target: Target, callers: Callers, by: str, depth: int) -> Callable[[StackUsage], Value]:
    """Return the function that gives the key of a user: users with the same key are one group."""

    def caller_key(name: Callable[[tuple[int, bool]], str]) -> Callable[[StackUsage], Value]:
        def key(user: StackUsage) -> Value:
            frame = callers.caller_frame(user.stack)
            return name(frame) if frame is not None else UNKNOWN

        return key

    return {
        "stack": lambda user: _first_frames(callers, user.stack, depth),
        "function": caller_key(callers.function_name),
        "file": caller_key(lambda frame: source_of(target, frame) or callers.library(frame)),
        "library": caller_key(callers.library),
        "thread": _thread,
        "size": lambda user: user.part,
    }[by]


def _first_frames(callers: Callers, stack: Stack, depth: int) -> tuple[object, ...]:
    """Return the first `depth` frames that are not skipped.

    A function that calls itself counts once. So stacks of one recursion are one group, however deep they are. The key
    of a `depth` of 0 is the whole stack.
    """
    if not depth:
        return (*stack.frames,)
    key: list[object] = []
    last: Optional[int] = None
    for frame in stack.frames:
        if callers.is_skipped(frame):
            continue
        function = callers.function(frame)
        if function is not None and function == last:
            continue
        if len(key) == depth:
            break
        key.append(frame)
        last = function
    return (*key,) or (*stack.frames,)


def _thread(user: StackUsage) -> str:
    thread = user.recording.thread(user.part)
    if thread.tid is None:
        return UNKNOWN
    return f"{thread.tid} ({thread.name})" if thread.name else str(thread.tid)


def _group(users: Iterable[StackUsage], key_of: Callable[[StackUsage], Value]) -> list[Group]:
    """Return the groups, the biggest first. `users` are sorted by their bytes."""
    groups: dict[Value, Group] = {}
    for user in users:
        key = key_of(user)
        group = groups.setdefault(key, Group(key, user))
        group.users.append(user)
        group.stacks.add((id(user.recording), user.stack_key))
    return sorted(groups.values(), key=lambda group: -group.bytes)


def _row(callers: Callers, group: Group, everything: float, by_stack: bool) -> tuple[Value, ...]:
    share = 100 * group.bytes / everything if everything else 0.0
    stack = group.biggest.stack
    caller = callers.caller(stack)
    oldest = min((user.oldest for user in group.users), key=lambda record: record.time)
    return (
        round(group.bytes),
        round(group.count),
        share,
        len(group.stacks),
        *((caller.text, caller.source or None) if by_stack else (group.key,)),
        sum(user.count for user in group.users),
        sum(user.bytes for user in group.users),
        *group.sizes,
        oldest.bufctl,
        *(stack_values(callers, stack) if by_stack else ()),
    )


def _headline(group: Group) -> str:
    """Return the line above a stack. ::umausers begins so: 33554432 bytes for 1 allocations with data size 33554432:"""
    least, most = group.sizes
    sizes = f"data size {least}" if least == most else f"data sizes {least} to {most}"
    about = "about " if group.biggest.recording.mean else ""
    line = f"{about}{round(group.bytes)} bytes for {round(group.count)} allocations with {sizes}"
    if len(group.stacks) == 1:
        return f"{line}:"
    return f"{line}, {len(group.stacks)} stacks; the biggest holds {round(group.biggest.likely_bytes)} bytes:"


def _footer(groups: Sequence[Group], shown: Sequence[Group], everything: float) -> list[str]:
    lines = [_RULE]
    hidden = groups[len(shown) :]
    if hidden:
        lines.append(_sum(hidden, everything, f" in {len(hidden)} smaller groups (--all shows them)"))
    lines.append(_sum(groups, everything, " in total"))
    return lines


def _sum(groups: Sequence[Group], everything: float, text: str) -> str:
    size, count = sum(group.bytes for group in groups), sum(group.count for group in groups)
    share = 100 * size / everything if everything else 0.0
    human = f", {human_size(round(size))}" if size >= 1024 else ""
    return f"{round(size):12} {round(count):8} {share:4.0f}%{human}{text}"


def _depth(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text} is not a number of functions: give 0 or more")
    return int(text)


def byte_count(text: str) -> int:
    """Return the number of bytes that a text such as 4096, 64K or 1.5M means: the ``type`` of an argument."""
    match = re.match(r"^(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?$", text.upper())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is not a size: give bytes, or 64K, 1.5M, 2G")
    return int(float(match[1]) * _UNITS[match[2]])


COMMAND = Command(
    name="umausers",
    summary="who holds the memory: live bytes by the stack that allocated them, the biggest first",
    description=(
        "Counts the bytes that were asked for, leaked or not. Stacks are one group if they agree in the first frames\n"
        "that are not wrappers (--depth). The stack below each line is the biggest of its group. %LIVE is the share\n"
        "of all live bytes that were recorded. If only samples were recorded, counts and bytes are estimates."
    ),
    run=run,
    arguments=(
        Argument("--by", choices=tuple(_KEYS), default="stack", help="what makes a group (stack); file: the source"),
        Argument(
            "--depth",
            type=_depth,
            default=_DEPTH,
            metavar="N",
            help=f"how many frames of a stack make a group ({_DEPTH}; 0: the whole stack)",
        ),
        Argument("--min", type=byte_count, default=0, metavar="BYTES", help="only groups that hold as much (64K, 1M)"),
        Argument("--top", type=positive, default=_TOP, metavar="N", help=f"the N biggest ({_TOP})"),
        Argument("--all", action="store_true", help="all groups"),
        *CALLER_ARGUMENTS,
        LINES,
        Argument("what", nargs="?", metavar="ADDR|FUNCTION", help="only those with this in their stack"),
    ),
    requires=("userland", "audit"),
    examples=(
        ("umausers --top 3", "the three biggest"),
        ("umausers --by library --min 1M", "the libraries that hold at least 1 MiB"),
        ("umausers main", "what was allocated from main down"),
    ),
)
