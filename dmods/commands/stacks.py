"""Show the different stacks of all threads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dmods.base.progress import Progress
from dmods.base.shapes import STACK_COLUMNS
from dmods.command import Argument, Command, positive
from dmods.commands._stacks import thread_frames, thread_stack_table
from dmods.commands.findstack import stack_notes
from dmods.modules.by_address import modules_by_address
from dmods.modules.lines import source_lines
from dmods.process.unwind import ENDS, FRAME_LIMIT, Frame, ManyThreads, Stack, describe
from dmods.report import Column, Report, Table, Value
from dmods.target import Target, Thread

# Each stack takes a table. Programs have fewer.
_MAX_STACKS = 10_000

SUMMARY = (
    Column("number", "count", width=5, title="STACK"),
    Column("count", "count", width=5),
    Column("threads"),
    Column("top"),
    Column("tids", hidden=True),
    *STACK_COLUMNS,
    Column("end", hidden=True),
)


class Shared(NamedTuple):
    """Threads whose frames have the same pcs, and the stack of the first of them."""

    threads: list[Thread]
    stack: Stack


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the stacks, each with its threads."""
    many = ManyThreads(target, args.limit)
    groups, left_out = _grouped(target, many)
    wanted = [group for group in groups if _matches(target, group.stack.frames, args.module, args.caller)]
    wanted.sort(key=lambda group: -len(group.threads))  # stable: the thread that died stays before its equals
    notes = [stack_notes(target, group.stack.frames) for group in wanted]
    rows = [_row(target, number, group, note) for number, (group, note) in enumerate(zip(wanted, notes), 1)]
    tables = [Table("stacks", SUMMARY, rows)]
    for number, (group, note) in enumerate(zip(wanted, notes), 1):
        title = f"stack {number}: {len(group.threads)} thread{'s' if len(group.threads) > 1 else ''}"
        tables.append(thread_stack_table(target, group.stack, note, f"stack {number}", title=title, sp=False))
    report = Report(tables, totals={"stacks": len(wanted), "threads": sum(len(group.threads) for group in wanted)})
    if groups and not wanted:
        report.notes.append(f"{len(groups)} stacks were compared: none matches -m and -c")
    if left_out:
        report.notes.append(f"{left_out} threads have stacks beyond the first {_MAX_STACKS}: they are left out")
    if many.missed:
        report.notes.append(f"the threads have too many frames: {many.missed} threads show their innermost frame only")
    return report


def _grouped(target: Target, many: ManyThreads) -> tuple[list[Shared], int]:
    """Return the threads by the pcs of their stacks, and how many threads are in none of these groups."""
    groups: dict[tuple[tuple[int, bool], ...], Shared] = {}
    left_out = 0
    threads = target.threads()
    with Progress("unwinding") as bar:
        for number, thread in enumerate(threads):
            bar.update(number, len(threads))
            frames, end = many.walk(thread)
            key = tuple((frame.pc, frame.exact) for frame in frames)
            if key in groups:
                groups[key].threads.append(thread)
            elif len(groups) < _MAX_STACKS:
                groups[key] = Shared([thread], Stack([replace(frame, registers={}) for frame in frames], end))
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
        partial(thread_frames, target, frames, notes),
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
    if owner is None:
        return False
    return owner.name == name or (owner.name.startswith(name) and not owner.name[len(name)].isalnum())


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


COMMAND = Command(
    name="stacks",
    summary="the unique stacks of all threads, the most common first",
    description="Threads with the same pcs share a stack. Source lines and inlined functions: see `findstack`.",
    run=run,
    arguments=(
        Argument(
            "-m", "--module", default="", metavar="MODULE", help="only stacks with a frame in this module (libc, ...)"
        ),
        Argument("-c", "--caller", default="", metavar="FUNCTION", help="only stacks with a frame in this function"),
        Argument("-n", "--limit", type=positive, default=FRAME_LIMIT, metavar="N", help="at most N frames"),
    ),
    examples=(
        ("stacks", "what the threads are doing, grouped"),
        ("stacks -c pthread_cond_wait", "who waits for a condition"),
    ),
)
