"""Show who holds the memory: live bytes by the stack that allocated them."""

from __future__ import annotations

import argparse
from typing import Callable, cast

from dmods.command import Argument, Command
from dmods.commands._records import CALLER_ARGUMENTS, LINES, callers_asked
from dmods.commands._users import ARGUMENTS, TOTALS, User, caller_key, groups_of, stack_key, users_report, users_schema
from dmods.records.callers import UNKNOWN, Callers, source_of
from dmods.records.mapped import require_maps
from dmods.records.model import StackUsage
from dmods.records.sources import require_records
from dmods.report import Column, Report, Value
from dmods.target import Target

BLOCKS, MAPS = "blocks", "maps"
_KEYS = {
    "stack": Column("caller"),
    "function": Column("function"),
    "file": Column("file"),
    "library": Column("library"),
    "thread": Column("thread"),
    "size": Column("size", "bytes"),
}
_USERS = users_schema(_KEYS)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the users of memory, the biggest first."""
    maps = args.source == MAPS
    found = require_maps(target) if maps else require_records(target)
    callers = callers_asked(target, args, lines=args.lines)
    users = found.users(args.by if args.by in {"thread", "size"} else "")
    everything = sum(user.likely_bytes for user in users)
    if args.what is not None:
        address = target.evaluate(args.what)
        users = [user for user in users if callers.passes(user.stack, address)]
    means = {recording.mean for recording in found.recordings if recording.mean}
    groups = groups_of(users, _key_of(target, callers, args.by, args.depth))
    what = "mappings" if maps else "allocations"
    report = users_report(args, callers, groups, everything, _USERS, what=what, estimated=bool(means))
    report.notes += found.notes
    if means:
        report.notes.append(
            f"only samples were recorded, one in {max(means)} bytes: counts and bytes are estimates by their weight"
        )
    return report


def _key_of(target: Target, callers: Callers, by: str, depth: int) -> Callable[[User], Value]:
    """Return the function that gives the key of a user: users with the same key are one group."""
    return {
        "stack": stack_key(callers, depth),
        "function": caller_key(callers, callers.function_name),
        "file": caller_key(callers, lambda frame: source_of(target, frame) or callers.library(frame)),
        "library": caller_key(callers, callers.library),
        "thread": lambda user: _thread(cast(StackUsage, user)),
        "size": lambda user: cast(StackUsage, user).part,
    }[by]


def _thread(user: StackUsage) -> str:
    thread = user.recording.thread(user.part)
    if thread.tid is None:
        return UNKNOWN
    return f"{thread.tid} ({thread.name})" if thread.name else str(thread.tid)


COMMAND = Command(
    name="umausers",
    summary="who holds the memory: live bytes by the stack that allocated them, the biggest first",
    description=(
        "Counts the bytes that were asked for, leaked or not. Stacks are one group if they agree in the first frames\n"
        "that are not wrappers (--depth). The stack below each line is the biggest of its group. %LIVE is the share\n"
        "of all live bytes that were recorded. If only samples were recorded, counts and bytes are estimates."
    ),
    run=run,
    tables=(_USERS,),
    totals=TOTALS,
    arguments=(
        Argument(
            "--source",
            choices=(BLOCKS, MAPS),
            default=BLOCKS,
            help="blocks: what was allocated (the default); maps: what was mapped (`dmods run --audit audit,maps`)",
        ),
        Argument("--by", choices=tuple(_KEYS), default="stack", help="what makes a group (stack); file: the source"),
        *ARGUMENTS,
        *CALLER_ARGUMENTS,
        LINES,
        Argument("what", nargs="?", metavar="ADDR|FUNCTION", help="only those with this in their stack"),
    ),
    requires=("userland", "audit"),
    examples=(
        ("umausers --top 3", "the three biggest"),
        ("umausers --by library --min 1M", "the libraries that hold at least 1 MiB"),
        ("umausers main", "what was allocated from main down"),
        ("umausers --source maps --min 60M", "who maps more than 60 MB"),
    ),
)
