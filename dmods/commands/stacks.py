"""The unique stacks of all threads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dmods import stacks
from dmods.command import Argument, Command, positive
from dmods.commands.findstack import notes
from dmods.progress import Progress
from dmods.report import Column, Report, Table
from dmods.stacks import Frame
from dmods.target import Target, Thread

# No program has so many: each takes a table.
_MOST_STACKS = 10_000

SUMMARY = (
    Column("stack", "count", width=5),
    Column("count", "count", width=5),
    Column("threads"),
    Column("top"),
)
FRAMES = (Column("pc", "address", width=16), Column("where"), Column("note"))


class Shared(NamedTuple):
    """Threads whose frames have the same pcs, and the frames of the first of them."""

    threads: list[Thread]
    frames: list[Frame]


def run(target: Target, args: argparse.Namespace) -> Report:
    groups: dict[tuple[tuple[int, bool], ...], Shared] = {}
    many, others = stacks.ManyThreads(target, args.limit), 0
    threads = target.threads()
    with Progress("unwinding") as bar:
        for number, thread in enumerate(threads):
            bar.update(number, len(threads))
            frames = many.unwind(thread)
            key = tuple((frame.pc, frame.exact) for frame in frames)
            if key in groups:
                groups[key].threads.append(thread)
            elif len(groups) < _MOST_STACKS:
                groups[key] = Shared([thread], [replace(frame, registers={}) for frame in frames])
            else:
                others += 1
    wanted = [group for group in groups.values() if _matches(target, group.frames, args.module, args.caller)]
    wanted.sort(key=lambda group: -len(group.threads))  # stable: the thread that died stays before its equals

    places: dict[tuple[int, bool], str] = {}

    def where(frame: Frame) -> str:
        key = frame.pc, frame.exact
        if key not in places:
            places[key] = stacks.describe(target, frame)
        return places[key]

    tables = [
        Table(
            "stacks",
            SUMMARY,
            [
                (number, len(group.threads), _tids(group.threads), where(group.frames[0]) if group.frames else "?")
                for number, group in enumerate(wanted, 1)
            ],
        )
    ]
    for number, group in enumerate(wanted, 1):
        rows = [(frame.pc, where(frame), note) for frame, note in zip(group.frames, notes(target, group.frames))]
        title = f"stack {number}: {len(group.threads)} thread{'s' if len(group.threads) > 1 else ''}"
        tables.append(Table(f"stack {number}", FRAMES, rows, style="plain", title=title))
    count = sum(len(group.threads) for group in wanted)
    said = [] if wanted or not groups else [f"none of the {len(groups)} stacks goes through what was asked for"]
    if others:
        said.append(f"the first {_MOST_STACKS} different stacks are shown: {others} threads have others")
    if many.missed:
        said.append(f"the threads have too many frames: of {many.missed} of them only the innermost is shown")
    return Report(tables, said, totals={"stacks": len(wanted), "threads": count})


def _tids(threads: Sequence[Thread]) -> str:
    """The tids in order, runs of them as FIRST-LAST."""
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
    """``libc`` means libc.so.6, and libc-2.31.so."""
    at = frame.code_address
    owner = next((m for m in target.modules() if m.start <= at < m.end), None)
    if owner is None:
        return False
    return owner.name == name or (owner.name.startswith(name) and not owner.name[len(name)].isalnum())


def _in_function(target: Target, frame: Frame, name: str) -> bool:
    """By the name as stacks show it (``std::vector<int>::push_back``), or as the symbol table has it."""
    symbol = target.symbol_at(frame.code_address)
    if symbol is None:
        return False
    shown = stacks.describe(target, frame).partition("`")[2] or stacks.describe(target, frame)
    return name in (symbol.name, shown.rpartition("+0x")[0] or shown)


COMMAND = Command(
    name="stacks",
    summary="the unique stacks of all threads, the most common first",
    description="Threads that stand at the same pcs are shown once.",
    run=run,
    arguments=(
        Argument(
            "-m", "--module", default="", metavar="MODULE", help="only stacks with a frame in this module (libc, ...)"
        ),
        Argument("-c", "--caller", default="", metavar="FUNCTION", help="only stacks with a frame in this function"),
        Argument("-n", "--limit", type=positive, default=stacks.FRAME_LIMIT, metavar="N", help="at most N frames"),
    ),
    examples=(
        ("stacks", "what the threads are doing, grouped"),
        ("stacks -c pthread_cond_wait", "who waits for a condition"),
    ),
)
