"""Show the stack of one thread. Frames that a signal interrupted have their exact pc."""

from __future__ import annotations

import argparse

from dmods.command import Argument, Command
from dmods.commands._stack_arguments import VERBOSE, limit_argument
from dmods.commands._stacks import merged_stack, thread_frames, thread_stack_table
from dmods.process import signals
from dmods.process.deep_stacks import walk_whole
from dmods.process.shapes import FRAME, STACK_COLUMNS
from dmods.process.threads import find_thread
from dmods.process.unwind import ENDS, FRAME_LIMIT, Frame, signal_of, walk
from dmods.report import Column, Report, Schema, Table, Value
from dmods.target import Target

THREADS = Schema(
    "threads",
    "the thread",
    (
        Column("thread", "count"),
        Column("name", null="it is not known"),
        Column("sp", "address", null="its registers are not known"),
        *STACK_COLUMNS,
        Column("end", about="why there are no more frames"),
        Column(
            "outermost",
            "objects",
            hidden=True,
            null="the stack above has all frames",
            about="the last 16 frames of a deeper stack",
            fields=FRAME,
        ),
    ),
)
_OUTERMOST = 16


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the stack of one thread."""
    thread = find_thread(target, args.thread)
    stack = walk(target, thread, args.limit or FRAME_LIMIT)
    whole = walk_whole(target, thread) if stack.truncated and args.limit is None else stack
    notes = stack_notes(target, whole.frames)
    merged = merged_stack(target, thread, stack)
    sp = thread.registers.get(target.arch.sp)
    name = f" ({thread.name})" if thread.name else ""
    title = f"stack pointer for thread {thread.tid}{name}: {'unknown' if sp is None else hex(sp)}"
    record = (
        thread.tid,
        thread.name,
        sp,
        lambda: thread_frames(target, stack.frames, notes[: len(stack.frames)], args.verbose, merged),
        stack.truncated,
        ENDS[stack.end],
        (lambda: thread_frames(target, whole.frames[-_OUTERMOST:], notes[-_OUTERMOST:]))
        if whole is not stack
        else None,
    )
    tables = [
        thread_stack_table(target, whole, notes, title=title, merged=merged, most=None if args.limit else FRAME_LIMIT),
        THREADS.table([record], only="json"),
    ]
    if args.verbose:
        tables.append(_registers(target, stack.frames))
    totals: dict[str, Value] = {
        "thread": thread.tid,
        "name": thread.name,
        "sp": None if sp is None else hex(sp),
        "frames": len(stack.frames),
        "depth": len(whole.frames),
        "end": ENDS[stack.end],
    }
    return Report(tables, totals=totals)


def stack_notes(target: Target, frames: list[Frame]) -> list[str]:
    """Return a remark for each frame: signals, and guesses. It is "" for most frames."""
    out = []
    handled = ""  # the signal, where the frame before is the trampoline of its handler
    for frame in frames:
        words = []
        if handled and frame.interrupted:
            words.append(f"<-- interrupted by {handled}")
        handled = ""
        if frame.trampoline:
            signal = signal_of(target, frame)
            handled = "a signal" if signal is None else signals.describe(signal)
            if signal is not None and signal.address is not None:
                handled += f" at {signal.address:#x}"
            words.append("(signal handler called)")
        if frame.guess:
            words.append(f"({frame.guess})")
        out.append(" ".join(words))
    return out


def _registers(target: Target, frames: list[Frame]) -> Table:
    """Return the registers that are known in each frame. In a caller's frame these are those that callees preserve."""
    names = [name for name in target.arch.registers if any(name in frame.registers for frame in frames)]
    columns = [Column("frame", "address"), Column("found"), *(Column(name, "address", width=16) for name in names)]
    rows = [(frame.sp, frame.found_by, *(frame.registers.get(name) for name in names)) for frame in frames]
    return Table("registers", columns, rows, style="record", only="text")


TOTALS = (
    Column("thread", "count", about="its number"),
    Column("name", "text", null="it is not known"),
    Column("sp", "address", null="its registers are not known"),
    Column("frames", "count", about="of the stack in the table"),
    Column("depth", "count", about="of the whole stack"),
    Column("end", "text", about="why there are no more frames"),
)


COMMAND = Command(
    name="findstack",
    summary="a thread's stack: stack pointer, pc, function and source line of each frame",
    description=(
        "THREAD is a tid, a pthread_t or a name. By default it is the thread that died. A frame that a signal\n"
        "interrupted is marked, and its pc is the exact one. A frame that is only likely says so. Frames\n"
        "that repeat are shown once (all of them with -n). Of a stack of more than 256 frames, the outermost ones are\n"
        "shown, too.\n\n"
        "Source lines and inlined functions are shown where debug information is on this machine: in the file, in\n"
        "a separate file (/usr/lib/debug, --sysroot, gdb's debug-file-directory), or in the cache of debuginfod.\n"
        "Nothing is downloaded."
    ),
    run=run,
    tables=(THREADS,),
    totals=TOTALS,
    arguments=(
        Argument("thread", metavar="THREAD", nargs="?", help="tid, pthread_t or name (default: the thread that died)"),
        VERBOSE,
        limit_argument(),
    ),
    examples=(
        ("findstack", "the stack of the thread that died"),
        ("findstack 1607 -v", "thread 1607, with registers"),
    ),
)
