"""Where a task was trapped: every pt_regs on its stacks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.base.dataclass import replace
from dmods.command import Argument, Command
from dmods.report import Column, Report, Schema, Table, Value
from drgnext.commands._stacks import TASK, gap_notes
from drgnext.commands.findstack import MOST_TASKS, chosen
from drgnext.kernel.crash.panic import trap_kind
from drgnext.kernel.stacks.frames import Stack
from drgnext.kernel.stacks.plain_walk import PlainFrame, past_user, trace, wrong_frames
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.stacks.threads import Threads, kernel_threads
from drgnext.kernel.stacks.traps import TrapFrame

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

FRAMES = Schema(
    "trapframes",
    "a pt_regs on the stacks of a task; each task has a table",
    (
        Column("pt_regs", "address", width=16),
        Column("stack_name", title="STACK", null="it is on no stack that is known"),
        Column("trap", null="it is not known"),
        Column("pc", "address", width=16),
        Column("where"),
        Column("source", null="it is not known"),
        Column("found"),
        Column("lie", title="other walkers", about="what other walkers say there, or empty"),
    ),
)

REGISTERS = Schema(
    "registers",
    "the registers in a pt_regs",
    (
        Column("pt_regs", "address", width=16),
        Column("*", "address", width=16, null="this pt_regs does not have it", about="each register by its name"),
    ),
    when="with -v",
)
TOTALS = (
    Column("thread", "address", about="the task_struct; the totals are those of the last task"),
    Column("name"),
    Column("pid", "count"),
    Column("traps", "count"),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the trap frames of the tasks that the user names."""
    known = kernel_threads(kernel)
    tasks = chosen(known, args.task, "trapframe")
    report = Report()
    for task in tasks[:MOST_TASKS]:
        stack = known.stack(task)
        traps, rows, left = _rows(known, task, stack, args.all)
        if left and not args.all:
            report.notes.append(f"{left} more trap frames are left over from before: -a shows them")
        report.notes += gap_notes(stack)
        title = f"trap frames of thread {task.address:x} ({task.comm}, pid {task.pid})"
        report.tables.append(FRAMES.table(rows, title=title))
        if args.verbose:
            report.tables.append(_registers(known, traps))
        report.totals.update({"thread": hex(task.address), "name": task.comm, "pid": task.pid, "traps": len(rows)})
    if len(tasks) > MOST_TASKS:
        report.notes.append(f"{len(tasks)} tasks have the name {args.task}: the first {MOST_TASKS} are shown")
    report.notes += known.notes
    return report


def _rows(
    known: Threads, task: Task, stack: Stack, everything: bool
) -> tuple[list[TrapFrame], list[tuple[Value, ...]], int]:
    """Return (trap frames, their rows, number of leftover trap frames).

    The trap frames that the stack leads to come first, innermost first. Those that only a look at every word finds
    follow. Leftover trap frames are from before. They are shown only with ``everything``.
    """
    plain = trace(known, task)
    traps: list[TrapFrame] = []
    rows: list[tuple[Value, ...]] = []
    used, left = known.traps_by_scan(task, stack)
    scanned = {trap.address for trap in used}
    for n, frame in enumerate(stack.frames):
        if frame.trap is not None:
            found = "scan" if frame.found == "scan" else ("walk and scan" if frame.trap.address in scanned else "walk")
            lie = "; ".join(wrong_frames(known, stack, n, plain)) or "agrees"
            traps.append(frame.trap)
            rows.append(_row(known, task, frame.trap, found, lie))
    if stack.user is not None:
        cut = stack.gap_before(len(stack.frames)) is not None
        found = "scan" if cut else ("walk and scan" if stack.user.address in scanned else "walk")
        traps.append(stack.user)
        rows.append(_row(known, task, stack.user, found, _past(past_user(stack, plain))))
    walked = {trap.address for trap in traps}
    for trap in used:
        if trap.address not in walked:
            traps.append(trap)
            rows.append(_row(known, task, trap, "scan", ""))
    for trap in left if everything else ():
        traps.append(trap)
        rows.append(_row(known, task, trap, "scan: left over", ""))
    return traps, rows, len(left)


def _row(known: Threads, task: Task, trap: TrapFrame, found: str, lie: str) -> tuple[Value, ...]:
    """Return the cells of FRAMES for one trap frame."""
    stack = known.walker.stack_at(trap.address, known.own_stack(task))
    pc = trap.pc if trap.user else known.places.trapped_at(trap, trap.pc)
    lines = known.places.lines(pc) if not trap.user else []
    return (
        trap.address,
        stack.name if stack is not None else None,
        trap_kind(known, trap) or None,
        pc,
        "user space" if trap.user else known.places.describe(pc),
        str(lines[0]) if lines else None,
        found,
        lie,
    )


def _past(frames: list[PlainFrame]) -> str:
    """Return what drgn shows beyond the boundary to user space, in words."""
    if not frames:
        return "agrees"
    shown = ", ".join(f"{frame.pc:#x}" for frame in frames[:3]) + (", ..." if len(frames) > 3 else "")
    return f"drgn continues into user space: {shown}"


def _registers(known: Threads, traps: list[TrapFrame]) -> Table:
    """Return the table of all registers in the trap frames."""
    names = [name for name in known.machine.registers if any(name in trap.registers for trap in traps)]
    columns = [REGISTERS.columns[0], *(replace(REGISTERS.columns[1], name=name) for name in names)]
    rows = [(trap.address, *(trap.registers.get(name) for name in names)) for trap in traps]
    return REGISTERS.table(rows, columns, style="record")


COMMAND = Command(
    name="trapframe",
    summary="every pt_regs on a task's stacks, and what other walkers say there",
    description=(
        "TASK is the address of a task_struct, a pid or a name. By default it is the task that panicked. Saved\n"
        "registers are found twice: by walking the stack, and by looking at every word of the task's stack and of its\n"
        "CPU's interrupt and exception stacks. The last column says where drgn's own trace, or a walker that takes\n"
        "every pc for a return address, names another function or line."
    ),
    run=run,
    tables=(FRAMES, REGISTERS),
    totals=TOTALS,
    arguments=(
        TASK,
        Argument("-a", "--all", action="store_true", help="also show trap frames left over from before"),
        Argument("-v", "--verbose", action="store_true", help="show all registers"),
    ),
    requires=("kernel",),
    examples=(("trapframe", "where the task that panicked was trapped"), ("trapframe 1 -v", "with all registers")),
)
