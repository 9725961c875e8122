"""Show the different stacks of all threads."""

from __future__ import annotations

import argparse
from collections.abc import Hashable, Iterator, Sequence
from functools import partial

from dmods.base.dataclass import replace
from dmods.base.named_tuple import NamedTuple
from dmods.base.progress import Progress
from dmods.command import Command
from dmods.commands._goroutine_groups import STACKS, Group, Wanted, group_row, grouped
from dmods.commands._goroutines import stack_table
from dmods.commands._stack_arguments import chosen_frames, limit_argument
from dmods.commands._stacks import merged_stack, thread_frames, thread_stack_table
from dmods.commands.findstack import stack_notes
from dmods.modules.by_address import modules_by_address
from dmods.modules.lines import source_lines
from dmods.process.shapes import STACK_COLUMNS
from dmods.process.unwind import ENDS, FRAME_LIMIT, Frame, ManyThreads, Stack, describe
from dmods.report import Column, Report, Schema, Value
from dmods.runtimes.golang.goroutines import find_goroutines
from dmods.runtimes.python.merged import Merged
from dmods.target import Target, Thread

# Each stack takes a table. Programs have fewer.
_MAX_STACKS = 10_000

SUMMARY = Schema(
    "stacks",
    "threads with the same stack",
    (
        Column("number", "count", width=5, title="STACK"),
        Column("count", "count", width=5),
        Column("threads", about="their numbers, runs of them as FIRST-LAST"),
        Column("top"),
        Column("tids", "counts", hidden=True),
        *STACK_COLUMNS,
        Column("end", hidden=True, about="why there are no more frames"),
    ),
)

GOROUTINE_STACKS = replace(STACKS, name="goroutine_stacks", when="for a Go program")


class Shared(NamedTuple):
    """Threads whose frames have the same pcs and run the same Python frames, and the stack of the first of them."""

    threads: list[Thread]
    stack: Stack
    merged: Merged


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the stacks, each with its threads."""
    many = ManyThreads(target, args.limit)
    groups, left_out = _grouped(target, many)
    wanted = [group for group in groups if _matches(target, group.stack.frames, args.module, args.caller)]
    wanted.sort(key=lambda group: -len(group.threads))  # stable: the thread that died stays before its equals
    notes = [stack_notes(target, group.stack.frames) for group in wanted]
    rows = [_row(target, number, group, note) for number, (group, note) in enumerate(zip(wanted, notes), 1)]
    tables = [SUMMARY.table(rows)]
    for number, (group, note) in enumerate(zip(wanted, notes), 1):
        title = f"stack {number}: {len(group.threads)} thread{'s' if len(group.threads) > 1 else ''}"
        tables.append(
            thread_stack_table(target, group.stack, note, f"stack {number}", title=title, sp=False, merged=group.merged)
        )
    report = Report(tables, totals={"stacks": len(wanted), "threads": sum(len(group.threads) for group in wanted)})
    if groups and not wanted:
        report.notes.append(f"{len(groups)} stacks were compared: none matches -m and -c")
    if left_out:
        report.notes.append(f"{left_out} threads have stacks beyond the first {_MAX_STACKS}: they are left out")
    _add_goroutines(target, args, report)
    if many.missed:
        report.notes.append(f"the threads have too many frames: {many.missed} threads show their innermost frame only")
    return report


def _add_goroutines(target: Target, args: argparse.Namespace, report: Report) -> None:
    """Add the stacks of a Go program's goroutines, each with what the runtime's own trace says in brackets."""
    found = find_goroutines(target)
    if not found.modules:
        return
    if found.problem:
        report.notes.append(f"no goroutines: {found.problem}")
        return
    alive = [one for one in found.all if not one.dead]
    groups, left_out = grouped(target, alive, Wanted(args.limit, caller=args.caller, traced=True))
    groups = [group for group in groups if not args.module or any(_has(target, group, args.module))]
    groups.sort(key=lambda group: -len(group.members))
    rows = [group_row(target, number, group) for number, group in enumerate(groups, 1)]
    report.tables.append(GOROUTINE_STACKS.table(rows, title="goroutines"))
    for number, group in enumerate(groups, 1):
        one, count = group.members[0], len(group.members)
        who = f"goroutine {one.number}" if count == 1 else f"{count} goroutines"
        title = f"goroutine stack {number}: {who} [{group.state}]"
        table = stack_table(target, group.stack, group.frames, f"goroutine stack {number}", title=title, sp=False)
        report.tables.append(table)
    report.totals["goroutines"] = sum(len(group.members) for group in groups)
    report.notes.extend(found.notes)
    if left_out:
        report.notes.append(f"{left_out} goroutines are left out: too many stacks, or too many frames")


def _has(target: Target, group: Group, name: str) -> Iterator[bool]:
    for frame in group.stack.frames:
        owner = modules_by_address(target).at(frame.code_address)
        yield owner is not None and _named(owner.name, name)


def _grouped(target: Target, many: ManyThreads) -> tuple[list[Shared], int]:
    """Return the threads by the pcs of their stacks, and how many threads are in none of these groups."""
    groups: dict[Hashable, Shared] = {}
    left_out = 0
    threads = target.threads()
    with Progress("unwinding") as bar:
        for number, thread in enumerate(threads):
            bar.update(number, len(threads))
            frames, end = many.walk(thread)
            merged = merged_stack(target, thread, Stack(frames, end))
            python = tuple((index, each.where) for index, run in merged.frames.items() for each in run)
            key = (tuple((frame.pc, frame.exact) for frame in frames), python)
            if key in groups:
                groups[key].threads.append(thread)
            elif len(groups) < _MAX_STACKS:
                groups[key] = Shared([thread], Stack([replace(frame, registers={}) for frame in frames], end), merged)
            else:
                left_out += 1
    return list(groups.values()), left_out


def _row(target: Target, number: int, group: Shared, notes: Sequence[str]) -> tuple[Value, ...]:
    """Return the cells of SUMMARY."""
    frames = group.stack.frames
    return (
        number,
        len(group.threads),
        _tids(group.threads),
        describe(target, frames[0]) if frames else "?",
        sorted(thread.tid for thread in group.threads),
        partial(thread_frames, target, frames, notes, False, group.merged),
        group.stack.truncated,
        ENDS[group.stack.end],
    )


def _tids(threads: Sequence[Thread]) -> str:
    """Return the tids in order, runs of them as FIRST-LAST."""
    runs: list[list[int]] = []
    for tid in sorted(thread.tid for thread in threads):
        if runs and runs[-1][1] == tid - 1:
            runs[-1][1] = tid
        else:
            runs.append([tid, tid])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _matches(target: Target, frames: Sequence[Frame], module: str, caller: str) -> bool:
    return (not module or any(_in_module(target, frame, module) for frame in frames)) and (
        not caller or any(_in_function(target, frame, caller) for frame in frames)
    )


def _in_module(target: Target, frame: Frame, name: str) -> bool:
    """Return whether the frame is in the module. ``libc`` means libc.so.6 and libc-2.31.so."""
    owner = modules_by_address(target).at(frame.code_address)
    return owner is not None and _named(owner.name, name)


def _named(module: str, name: str) -> bool:
    return module == name or (module.startswith(name) and not module[len(name)].isalnum())


def _in_function(target: Target, frame: Frame, name: str) -> bool:
    """Return whether the frame is in the function, or in one that was inlined there.

    ``name`` is the name that stacks show (``std::vector<int>::push_back``), or the one in the symbol table.
    """
    symbol = target.symbol_at(frame.code_address)
    if symbol is not None:
        shown = describe(target, frame).partition("`")[2] or describe(target, frame)
        if name in (symbol.name, shown.rpartition("+0x")[0] or shown):
            return True
    inlined = source_lines(target).frames_at(frame.code_address, exact=True)[:-1]
    return any(name == each.function for each in inlined)


TOTALS = (
    Column("stacks", "count"),
    Column("threads", "count"),
    Column("goroutines", "count", when="for a Go program"),
)


COMMAND = Command(
    name="stacks",
    summary="the unique stacks of all threads, the most common first",
    description=(
        "Threads with the same pcs share a stack. Source lines and inlined functions: see `findstack`.\n\n"
        "In a Go program, the stacks of goroutines follow, with their states as in the runtime's own traces:\n"
        "[chan receive, 5 minutes, locked to thread]. The minutes are a lower bound."
    ),
    run=run,
    tables=(SUMMARY, GOROUTINE_STACKS),
    totals=TOTALS,
    arguments=(
        *chosen_frames("libc"),
        limit_argument(FRAME_LIMIT),
    ),
    examples=(
        ("stacks", "what the threads are doing, grouped"),
        ("stacks -c pthread_cond_wait", "who waits for a condition"),
    ),
)
