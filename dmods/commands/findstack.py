"""One thread's stack, with the truth about trapped frames."""

from __future__ import annotations

import argparse

from dmods import signals, stacks, threads
from dmods.command import Argument, Command, positive
from dmods.report import Column, Report, Table, Value
from dmods.stacks import Frame
from dmods.target import Target

FRAMES = (
    Column("sp", "address", width=16),
    Column("pc", "address", width=16),
    Column("where"),
    Column("note"),
)


def run(target: Target, args: argparse.Namespace) -> Report:
    thread = threads.find(target, args.thread)
    frames, end = stacks.walk(target, thread, args.limit)
    sp = thread.registers.get(target.arch.sp)
    name = f" ({thread.name})" if thread.name else ""
    rows = [
        (frame.sp, frame.pc, stacks.describe(target, frame), note) for frame, note in zip(frames, notes(target, frames))
    ]
    title = f"stack pointer for thread {thread.tid}{name}: {'unknown' if sp is None else hex(sp)}"
    footer = [] if end in stacks.WHOLE else [f"(no more frames: {stacks.ENDS[end]})"]
    tables = [Table("stack", FRAMES, rows, style="plain", title=title, footer=footer)]
    if args.verbose:
        tables.append(_registers(target, frames))
    totals: dict[str, Value] = {
        "thread": thread.tid,
        "name": thread.name,
        "sp": None if sp is None else hex(sp),
        "frames": len(frames),
        "end": stacks.ENDS[end],
    }
    return Report(tables, totals=totals)


def notes(target: Target, frames: list[Frame]) -> list[str]:
    """What is to be said of each frame, beside its place."""
    out = []
    before = ""  # how the signal is called whose handler's trampoline was the frame before
    for frame in frames:
        words = []
        if before and frame.interrupted:
            words.append(f"<-- interrupted by {before}")
        before = ""
        if frame.trampoline:
            signal = stacks.signal_of(target, frame)
            before = "a signal" if signal is None else signals.describe(signal)
            if signal is not None and signal.address is not None:
                before += f" at {signal.address:#x}"
            words.append("(signal handler called)")
        if frame.guess:
            words.append(f"({frame.guess})")
        out.append(" ".join(words))
    return out


def _registers(target: Target, frames: list[Frame]) -> Table:
    """The registers that are known in each frame: a caller's are those that its callees must preserve."""
    names = [name for name in target.arch.registers if any(name in frame.registers for frame in frames)]
    columns = [Column("frame", "address"), Column("found"), *(Column(name, "address", width=16) for name in names)]
    rows = [(frame.sp, frame.found, *(frame.registers.get(name) for name in names)) for frame in frames]
    return Table("registers", columns, rows, style="record")


COMMAND = Command(
    name="findstack",
    summary="a thread's stack: stack pointer, pc and function of each frame",
    description=(
        "THREAD is a tid, a pthread_t or a name; the thread that died by default. What a signal interrupted is\n"
        "marked, and its pc is the exact one, not that of the last call. A frame that is only likely says so."
    ),
    run=run,
    arguments=(
        Argument("thread", metavar="THREAD", nargs="?", help="tid, pthread_t or name (default: the thread that died)"),
        Argument("-v", "--verbose", action="store_true", help="the registers known in each frame, too"),
        Argument("-n", "--limit", type=positive, default=stacks.FRAME_LIMIT, metavar="N", help="at most N frames"),
    ),
    examples=(
        ("findstack", "the stack of the thread that died"),
        ("findstack 1607 -v", "thread 1607, with registers"),
    ),
)
