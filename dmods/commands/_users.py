"""The tables of umausers: who holds the memory of a process, or the slab memory of a kernel."""

from __future__ import annotations

import argparse
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Callable, Optional, Protocol

from dmods.base.dataclass import dataclass, field, replace
from dmods.base.sizes import human_size
from dmods.command import Argument, positive
from dmods.commands._records import SOURCE, stack_table, stack_values
from dmods.process.shapes import stack_columns
from dmods.records.callers import UNKNOWN, Callers
from dmods.records.model import Stack
from dmods.report import Column, Report, Schema, Value

_TOP = 10
_DEPTH = 5
_INDENT = 9  # mdb's tab and space
_RULE = "-" * 72
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SUMS = (
    Column("bytes", "bytes", width=12, about="estimates where only samples were recorded"),
    Column("count", "count", width=8, about="estimates where only samples were recorded"),
    Column("percent", "percent", width=5, title="%LIVE"),
    Column("stacks", "count", about="how many different stacks"),
)
_EXACT = (
    Column("records", "count", hidden=True, about="what was recorded"),
    Column("recorded_bytes", "bytes", hidden=True, about="what was recorded"),
    Column("least", "bytes", hidden=True, about="the sizes of the blocks"),
    Column("most", "bytes", hidden=True, about="the sizes of the blocks"),
    Column("oldest", "address", hidden=True, about="the record of the oldest block, or the block"),
)

_BY_STACK = "with --by stack (the default)"
TOTALS = (
    Column("users", "count", about="groups"),
    Column("stacks", "count"),
    Column("bytes", "bytes"),
    Column("count", "count"),
    Column("live_bytes", "bytes", about="of all, those left out by an argument, too"),
    Column("shown_bytes", "bytes"),
    Column("estimated", "count", about="1 where only samples were recorded, else 0"),
)


def users_schema(keys: Mapping[str, Column]) -> Schema:
    """Return the table of a command whose --by takes these keys. Each has a column."""
    named = (replace(column, when=_BY_STACK if key == "stack" else f"with --by {key}") for key, column in keys.items())
    columns = (*_SUMS, *named, replace(SOURCE, when=_BY_STACK), *_EXACT, *stack_columns(when=_BY_STACK))
    return Schema("users", "a group of users of memory, the biggest first", columns)


class User(Protocol):
    """The live blocks of one stack. Where only samples were taken, ``likely_...`` is what they stand for."""

    @property
    def count(self) -> int:
        """Return the number of blocks that were recorded."""

    @property
    def bytes(self) -> int:
        """Return their bytes."""

    @property
    def likely_count(self) -> float:
        """Return the estimated number of blocks."""

    @property
    def likely_bytes(self) -> float:
        """Return the estimated bytes."""

    @property
    def least(self) -> int:
        """Return the least bytes of a block."""

    @property
    def most(self) -> int:
        """Return the most bytes of a block."""

    @property
    def stack(self) -> Stack:
        """Return the stack that allocated the blocks."""

    @property
    def identity(self) -> Hashable:
        """Return a key that is unique to its stack."""

    @property
    def first(self) -> tuple[int, int]:
        """Return the time and the address of the oldest block, or of its record."""


@dataclass
class Group:
    """Users that are shown in one row, sorted by their bytes. ``biggest`` is the one with the most bytes."""

    key: Value
    biggest: User
    users: list[User] = field(default_factory=list)
    stacks: set[Hashable] = field(default_factory=set)

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
        """Return the least and the largest size."""
        return min(user.least for user in self.users), max(user.most for user in self.users)


def groups_of(users: Iterable[User], key_of: Callable[[User], Value]) -> list[Group]:
    """Return the groups, the biggest first."""
    groups: dict[Value, Group] = {}
    for user in sorted(users, key=lambda user: -user.likely_bytes):
        key = key_of(user)
        group = groups.setdefault(key, Group(key, user))
        group.users.append(user)
        group.stacks.add(user.identity)
    return sorted(groups.values(), key=lambda group: -group.bytes)


def caller_key(callers: Callers, name: Callable[[tuple[int, bool]], Value]) -> Callable[[User], Value]:
    """Return the function that gives what ``name`` says of a user's caller."""

    def key(user: User) -> Value:
        frame = callers.caller_frame(user.stack)
        return name(frame) if frame is not None else UNKNOWN

    return key


def stack_key(callers: Callers, depth: int) -> Callable[[User], Value]:
    """Return the function that gives the first ``depth`` frames that are not skipped.

    A function that calls itself counts once. So stacks of one recursion are one group, however deep they are. The key
    of a ``depth`` of 0 is the whole stack.
    """

    def key(user: User) -> Value:
        frames = user.stack.frames
        if not depth:
            return (*frames,)
        found: list[object] = []
        last: Optional[int] = None
        for frame in frames:
            if callers.is_skipped(frame):
                continue
            function = callers.function(frame)
            if function is not None and function == last:
                continue
            if len(found) == depth:
                break
            found.append(frame)
            last = function
        return (*found,) or (*frames,)

    return key


def users_report(
    args: argparse.Namespace,
    callers: Callers,
    groups: Sequence[Group],
    everything: float,
    schema: Schema,
    *,
    what: str = "allocations",
    estimated: bool = False,
) -> Report:
    """Return the table of the groups that ARGUMENTS ask for, and the stack of each where stacks make a group.

    ``everything`` is the bytes of all users, of which the groups are a part. ``schema`` is of `users_schema`. With
    ``estimated``, only samples were recorded.
    """
    by_stack = args.by == "stack"
    shown = [group for group in groups if group.bytes >= args.min][: None if args.all else args.top]
    of_key = [column for column in schema.columns if f"--by {args.by}" in column.when or not column.when]
    columns = [replace(column, hidden=not args.lines) if column.name == SOURCE.name else column for column in of_key]
    rows = [_row(callers, group, everything, by_stack) for group in shown]
    report = Report([schema.table(rows, columns, footer=_footer(groups, shown, everything))])
    for number, group in enumerate(shown if by_stack else (), 1):
        title = _headline(group, what, estimated)
        report.tables.append(stack_table(callers, group.biggest.stack, f"stack {number}", title=title, indent=_INDENT))
    report.totals = {
        "users": len(groups),
        "stacks": len({stack for group in groups for stack in group.stacks}),
        "bytes": round(sum(group.bytes for group in groups)),
        "count": round(sum(group.count for group in groups)),
        "live_bytes": round(everything),
        "shown_bytes": round(sum(group.bytes for group in shown)),
        "estimated": int(estimated),
    }
    return report


def _row(callers: Callers, group: Group, everything: float, by_stack: bool) -> tuple[Value, ...]:
    share = 100 * group.bytes / everything if everything else 0.0
    key: tuple[Value, ...] = (group.key,)
    if by_stack:
        caller = callers.caller(group.biggest.stack)
        key = (caller.text, caller.source or None)
    return (
        round(group.bytes),
        round(group.count),
        share,
        len(group.stacks),
        *key,
        sum(user.count for user in group.users),
        sum(user.bytes for user in group.users),
        *group.sizes,
        min((user.first for user in group.users), key=lambda first: first[0])[1],
        *(stack_values(callers, group.biggest.stack) if by_stack else ()),
    )


def _headline(group: Group, what: str, estimated: bool) -> str:
    """Return the line above a stack. ::umausers begins so: 33554432 bytes for 1 allocations with data size 33554432:"""
    least, most = group.sizes
    sizes = f"data size {least}" if least == most else f"data sizes {least} to {most}"
    about = "about " if estimated else ""
    line = f"{about}{round(group.bytes)} bytes for {round(group.count)} {what} with {sizes}"
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


#: The arguments that say which groups are made, and which are shown.
ARGUMENTS = (
    Argument(
        "--depth",
        type=_depth,
        default=_DEPTH,
        metavar="N",
        help=f"how many frames of a stack make a group ({_DEPTH}; 0: the whole stack)",
    ),
    Argument(
        "--min",
        type=byte_count,
        default=0,
        metavar="BYTES",
        help="only groups that hold at least so many bytes (64K, 1M)",
    ),
    Argument("--top", type=positive, default=_TOP, metavar="N", help=f"the N biggest ({_TOP})"),
    Argument("--all", action="store_true", help="all groups"),
)
