"""Who holds the memory: live bytes by the stack that allocated them."""

from __future__ import annotations

import argparse

from dmods import records
from dmods.callers import Callers
from dmods.command import Argument, Command, positive
from dmods.records import User
from dmods.recordviews import stack_table
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

_TOP = 10
_INDENT = 9  # mdb's tab and space
COLUMNS = (
    Column("bytes", "bytes", width=12),
    Column("count", "count", width=8),
    Column("caller"),
    Column("records", "count", hidden=True),
    Column("recorded_bytes", "bytes", hidden=True),
    Column("least", "bytes", hidden=True),
    Column("most", "bytes", hidden=True),
    Column("oldest", "address", hidden=True),
)


def run(target: Target, args: argparse.Namespace) -> Report:
    found = records.require(target)
    callers = Callers(target)
    users = found.users()
    if args.what is not None:
        address = target.evaluate(args.what)
        users = [user for user in users if callers.passes(user.stack, address)]
    shown = users[: args.top]
    report = Report(notes=found.notes)
    if len(shown) < len(users):
        report.notes.append(f"{len(users) - len(shown)} users of less memory are not shown (--top)")
    means = {recording.mean for recording in found.recordings if recording.mean}
    if means:
        report.notes.append(
            f"only samples were recorded, one in {max(means)} bytes: counts and bytes are estimates by their weight"
        )
    report.tables.append(Table("users", COLUMNS, [_row(callers, user) for user in shown]))
    for number, user in enumerate(shown, 1):
        table = stack_table(callers, user.stack, f"stack {number}", title=_headline(user), indent=_INDENT)
        report.tables.append(table)
    report.totals = {
        "users": len(users),
        "bytes": sum(round(user.likely_bytes) for user in users),
        "count": sum(round(user.likely_count) for user in users),
        "estimated": int(bool(means)),
    }
    return report


def _row(callers: Callers, user: User) -> tuple[Value, ...]:
    caller = callers.caller(user.stack).text
    exact = (user.count, user.bytes, user.least, user.most, user.oldest.bufctl)
    return round(user.likely_bytes), round(user.likely_count), caller, *exact


def _headline(user: User) -> str:
    """As ::umausers begins each: 33554432 bytes for 1 allocations with data size 33554432:"""
    sizes = f"data size {user.least}" if user.least == user.most else f"data sizes {user.least} to {user.most}"
    about = "about " if user.recording.mean else ""
    return f"{about}{round(user.likely_bytes)} bytes for {round(user.likely_count)} allocations with {sizes}:"


COMMAND = Command(
    name="umausers",
    summary="who holds the memory: live bytes by the stack that allocated them, the biggest first",
    description=(
        "The memory hogs, leaked or not, by what was asked for. Where only samples were recorded, counts and bytes\n"
        "are what the samples stand for."
    ),
    run=run,
    arguments=(
        Argument("--top", type=positive, default=_TOP, metavar="N", help=f"the N biggest ({_TOP})"),
        Argument("what", nargs="?", metavar="ADDR|FUNCTION", help="only those with this in their stack"),
    ),
    requires=("userland", "audit"),
    examples=(("umausers --top 3", "the three biggest"), ("umausers main", "what was allocated from main down")),
)
