"""Show the goroutines of a Go program, each with its stack."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Optional

from dmods.base.dataclass import replace
from dmods.command import Argument, Command, positive
from dmods.commands._goroutine_groups import STACKS, Wanted, group_row, grouped
from dmods.commands._goroutines import frames_to_show, stack_table, stack_values
from dmods.errors import UsageError, UserError
from dmods.process.shapes import STACK_COLUMNS
from dmods.process.unwind import FRAME_LIMIT
from dmods.report import Column, Report, Schema, Value
from dmods.runtimes.golang.clock import waited
from dmods.runtimes.golang.goroutines import Goroutine, Goroutines, find_goroutines, function_name
from dmods.runtimes.golang.unwind import stack_of
from dmods.target import Target

LIST = Schema(
    "goroutines",
    "a goroutine",
    (
        Column("id", "count"),
        Column("state"),
        Column(
            "waits",
            "count",
            title="WAITS (S)",
            null="it does not wait, or the clock is not known",
            about="whole seconds",
        ),
        Column("thread", "count", null="no thread runs it"),
        Column("locked", "count", null="it is locked to no thread", about="the thread that it is locked to"),
        Column("start", about="its function, or empty"),
        Column("made_by", title="MADE BY", about="the function that made it, or empty"),
        Column("parent", "count", null="it is not known", about="the number of the goroutine that made it"),
        Column("address", "address", width=16),
        Column("stack_number", "count", title="STACK", about="`number` of the table stacks"),
    ),
    when="without ID",
)

_WAITS = "it does not wait, or the clock is not known"
ONE = Schema(
    "goroutine",
    "the goroutine",
    (
        Column("id", "count"),
        Column("state"),
        Column("waits", "count", title="waits at least (seconds)", null=_WAITS),
        Column("thread", "count", null="no thread runs it"),
        Column("locked", "count", title="locked to thread", null="it is locked to no thread"),
        Column("start", about="its function, or empty"),
        Column("made_by", title="made by", about="the function that made it, or empty"),
        Column("parent", "count", title="made by goroutine", null="it is not known"),
        Column("address", "address", width=16),
        Column("low", "address", width=16, title="stack from"),
        Column("high", "address", width=16, title="stack to"),
        *STACK_COLUMNS,
        Column("end", hidden=True, about="why there are no more frames; `complete`"),
    ),
    when="with ID",
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the goroutines, grouped by state and stack, or one of them."""
    found = find_goroutines(target)
    if not found.modules:
        absent = any(module.path == target.executable and module.file is None for module in target.modules())
        how = "give the program with --exe" if absent else "this command is for programs written in Go"
        raise UserError(f"no goroutines: {found.problem}", how)
    if found.problem:
        raise UserError(f"no goroutines: {found.problem}", "give the program (--exe) where the core lacks its code")
    if args.id is not None:
        return _one(target, found, args)
    alive = [one for one in found.all if not one.dead]
    groups, left_out = grouped(target, alive, Wanted(args.limit, args.state, args.caller, args.all_frames))
    groups.sort(key=lambda group: -len(group.members))
    tables = [STACKS.table([group_row(target, number, group) for number, group in enumerate(groups, 1)])]
    numbers = {one.address: number for number, group in enumerate(groups, 1) for one in group.members}
    listed = [_listed(target, one, numbers.get(one.address)) for one in alive if one.address in numbers]
    tables.append(LIST.table(listed, only="" if args.list else "json"))
    for number, group in enumerate(groups, 1):
        count = len(group.members)
        title = f"stack {number}: {count} goroutine{'s' if count > 1 else ''}, {group.members[0].state}"
        tables.append(stack_table(target, group.stack, group.frames, f"stack {number}", title=title, sp=False))
    totals: dict[str, Value] = {
        "stacks": len(groups),
        "goroutines": sum(len(group.members) for group in groups),
        "dead": len(found.all) - len(alive),
    }
    report = Report(tables, notes=list(found.notes), totals=totals)
    if alive and not groups:
        report.notes.append(f"{len(alive)} goroutines were looked at: none matches --state and -c")
    if left_out:
        report.notes.append(f"{left_out} goroutines are left out: too many stacks, or too many frames")
    broken = sum(len(group.members) for group in groups if group.stack.end and not group.stack.truncated)
    if broken:
        report.notes.append(f"the stacks of {broken} goroutines are not complete: the line below each says why")
    return report


def _listed(target: Target, one: Goroutine, number: Optional[int]) -> tuple[Value, ...]:
    """Return the cells of LIST."""
    return (
        one.number,
        one.state,
        waited(target, one) or None,
        one.thread,
        one.locked,
        function_name(target, one.start),
        function_name(target, one.made_at),
        one.parent or None,
        one.address,
        number,
    )


def _one(target: Target, found: Goroutines, args: argparse.Namespace) -> Report:
    """Return what is known of one goroutine, and its stack."""
    one = next((each for each in found.all if each.number == args.id and not each.dead), None)
    one = one or next((each for each in found.all if each.number == args.id), None)
    if one is None:
        raise UsageError(f"there is no goroutine {args.id}", "`goroutines -l` lists them")
    stack = stack_of(target, one, args.limit)
    frames = frames_to_show(stack, args.all_frames)
    facts: list[tuple[str, Value]] = [
        ("id", one.number),
        ("state", one.state),
        ("waits", waited(target, one) or None),
        ("thread", one.thread),
        ("locked", one.locked),
        ("start", function_name(target, one.start)),
        ("made_by", function_name(target, one.made_at)),
        ("parent", one.parent or None),
        ("address", one.address),
        ("low", one.stack[0]),
        ("high", one.stack[1]),
        ("stack", partial(stack_values, target, frames)),
        ("truncated", stack.truncated),
        ("end", stack.end or "complete"),
    ]
    tables = [ONE.record(facts), stack_table(target, stack, frames, "stack", title="stack", sp=True)]
    return Report(tables, notes=list(found.notes), totals={"goroutine": one.number, "frames": len(stack.frames)})


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not the number of a goroutine")
    return int(text)


TOTALS = (
    Column("stacks", "count", when="without ID"),
    Column("goroutines", "count", when="without ID"),
    Column("dead", "count", when="without ID"),
    Column("goroutine", "count", when="with ID", about="its number"),
    Column("frames", "count", when="with ID"),
)


COMMAND = Command(
    name="goroutines",
    summary="the goroutines of a Go program: what each does, who made it, and its stack",
    description=(
        "Goroutines in one state with the same stack are shown once. Functions, lines and inlined functions come from\n"
        "the program's own table, so a stripped program (-ldflags='-s -w') has them, too. As in Go's own traces,\n"
        "frames of the runtime are left out. --all-frames shows them.\n\n"
        "The time of a goroutine is the least time that it has waited: a garbage collection notes when it sees the\n"
        "goroutine wait. Goroutines with the same stack show the longest of their times. If no collection has seen a\n"
        "goroutine wait, it has no time.\n\n"
        "goroutines reads Go 1.19 to 1.27 on x86-64 and AArch64. The layout of the runtime's data is proven on each\n"
        "core."
    ),
    run=run,
    tables=(replace(STACKS, when="without ID"), LIST, ONE),
    totals=TOTALS,
    arguments=(
        Argument("id", metavar="ID", nargs="?", type=_count, help="one goroutine, by its number"),
        Argument("-a", "--all-frames", action="store_true", help="show the frames of Go's runtime, too"),
        Argument("-l", "--list", action="store_true", help="list each goroutine in a line, before the stacks"),
        Argument("-s", "--state", default="", metavar="TEXT", help="only goroutines whose state has this text in it"),
        Argument("-c", "--caller", default="", metavar="FUNCTION", help="only stacks with a frame in this function"),
        Argument("-n", "--limit", type=positive, default=FRAME_LIMIT, metavar="N", help="at most N frames"),
    ),
    examples=(
        ("goroutines", "what the program was doing, grouped"),
        ("goroutines -s 'chan send'", "who waits to send on a channel"),
        ("goroutines -a 17", "goroutine 17 with every frame"),
    ),
)
