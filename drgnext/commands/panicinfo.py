"""Why the kernel died."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Optional

from dmods._engine import disassemble
from dmods.command import BARE_KERNEL, KERNEL, Argument, Command
from dmods.report import Column, Report, Table, Value
from drgnext.commands._bare_panicinfo import bare_report
from drgnext.commands._from_notes import Noted, noted_registers, printed_frames, who_died
from drgnext.commands._stacks import gap_notes
from drgnext.kernel.crash import modules, operand
from drgnext.kernel.crash.first_fault import Place
from drgnext.kernel.crash.outcome import SENTENCES
from drgnext.kernel.crash.panic import Cause, find_panic, is_exception, trap_kind
from drgnext.kernel.crash.remarks import happened, inlined_in, jumper, named, recursions, repeated
from drgnext.kernel.crash.tracing import tracers
from drgnext.kernel.dump.target import unreadable
from drgnext.kernel.stacks.frames import Frame
from drgnext.kernel.stacks.threads import Threads, kernel_threads

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

_LONGEST_INSTRUCTION = 15  # of x86 (Intel SDM volume 2, 2.3.11)

Fact = tuple[Column, Value]


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return what is known about the panic."""
    from drgn import FaultError

    if kernel.lacking is not None:
        return bare_report(kernel, kernel.lacking, args.verbose)
    try:
        known = kernel_threads(kernel)
        cause = find_panic(known)
    except FaultError as error:  # what the notes and the log say is there all the same
        return bare_report(kernel, unreadable(kernel, "what panicinfo needs", error), args.verbose)
    loaded, notes = modules.loaded(known.prog)
    noted = _from_notes(kernel, known, cause)
    facts = [*_who(cause), *_what(known, cause), *_trap(known, cause), *noted.facts]
    facts += [
        (Column("tainted"), modules.tainted(known.prog)),
        (Column("modules"), modules.summary(loaded)),
        (Column("kernel"), modules.release(known.prog)),
    ]
    facts = [(column, value) for column, value in facts if value is not None]
    columns = [Column(c.name, c.kind, c.width, c.title or c.name) for c, _value in facts]
    table = Table("panicinfo", columns, [tuple(value for _column, value in facts)], style="record")
    tables = [table, *noted.tables, *_first_fault(known, cause)]
    gaps: list[str] = []
    if cause.stack is not None:
        gaps = gap_notes(cause.stack)
        probes = tracers(known, cause.stack)
        if probes:
            left = len(probes) - MOST_TRACERS
            footer = [f"... (and {left} more)"] if left > 0 else []
            title = "tracing, because the stack goes through it:"
            tables.append(Table("tracing", TRACING, probes[:MOST_TRACERS], title=title, footer=footer))
    if args.verbose:
        rows = [(one.name, one.address, one.size, one.taints) for one in loaded]
        tables.append(Table("modules", MODULES, rows))
    return Report(tables, notes=[*known.notes, *cause.notes, *noted.notes, *gaps, *notes])


MOST_TRACERS = 50

TRACING = (
    Column("kind", width=9),
    Column("address", "address", width=16),
    Column("where"),
    Column("calls"),
    Column("how"),
    Column("on_stack", title="ON STACK"),
)
MODULES = (
    Column("module", width=24),
    Column("address", "address", width=16),
    Column("size", "bytes"),
    Column("taints"),
)


def _who(cause: Cause) -> list[Fact]:
    """Return the facts about the CPU, the task and the messages. The log names a task that the dump lacks."""
    task, death = cause.task, cause.told.death
    cpu = death.cpu if cause.cpu is None and death is not None else cause.cpu
    return [
        (Column("cpu", "count"), cpu),
        (Column("thread", "address", width=16), task.address if task else None),
        *([(Column("name"), task.comm), (Column("pid", "count"), task.pid)] if task else who_died(death)[1:]),
        (Column("message"), cause.told.message or (SENTENCES[cause.died] if cause.told.panic is None else None)),
        (Column("panic"), cause.told.panic if cause.told.panic != cause.told.message else None),
    ]


def _from_notes(kernel: Kernel, known: Threads, cause: Cause) -> Noted:
    """Return what the dump's notes and the log say of the registers and the frames, if the dump lacks the stack."""
    if cause.died is False or (cause.stack is not None and cause.stack.frames):
        return Noted([], [], [])
    death = cause.told.death

    def named(pc: int) -> Optional[str]:
        return known.places.describe(pc) if known.places.function(pc) is not None else None

    noted = noted_registers(kernel.path, death, named)
    return noted._replace(tables=[*noted.tables, *printed_frames(death, lambda place: _line(known, place, False))])


def _what(known: Threads, cause: Cause) -> list[Fact]:
    """Return the facts about the cause: details, address, trap or caller."""
    trap = cause.trap
    facts: list[Fact] = [
        (Column("details"), "; ".join(cause.told.details) or None),
        (Column("address", "address", width=16), _address(known, cause)),
    ]
    if trap is not None and trap.trap is not None:
        facts.append((Column("trap"), happened(known, trap.trap)))
        facts.append((Column("pt_regs", "address", width=16), trap.trap.address))
    if trap is None or trap.trap is None or not is_exception(known, trap.trap):
        facts.append((Column("called_by", title="called by"), _place(known, cause.caller)))
    if cause.stack is not None:
        runs = [repeated(known, cause.stack.frames, run) for run in recursions(cause.stack.frames)]
        facts.append((Column("recursion"), "; ".join(runs) or None))
    return facts


def _first_fault(known: Threads, cause: Cause) -> list[Table]:
    """Return what the log says of the first oops, if the kernel survived it: a record, and its frames."""
    first = cause.told.first
    if first is None:
        return []
    facts: list[Fact] = [
        (Column("time"), f"{first.time:.6f} s"),
        (Column("message"), first.message),
        (Column("details"), "; ".join(first.details) or None),
        (Column("cpu", "count"), first.cpu),
        (Column("name"), first.comm),
        (Column("pid", "count"), first.pid),
        (Column("where"), str(first.pc) if first.pc is not None else None),
        (Column("source"), _line(known, first.pc, True) if first.pc is not None else None),
    ]
    facts = [(Column(c.name, c.kind, c.width, c.name), value) for c, value in facts if value is not None]
    columns, values = [column for column, _value in facts], tuple(value for _column, value in facts)
    title = "the first fault, which the kernel survived (from its log)"
    rows = [(str(place), _line(known, place, False) or "") for place in first.frames]
    return [
        Table("first_fault", columns, [values], style="record", title=title),
        Table("first_fault_frames", (Column("where"), Column("source")), rows, style="plain"),
    ]


def _line(known: Threads, place: Place, exact: bool) -> Optional[str]:
    """Return the line of source of a place in the log, or None."""
    return known.places.source_of(place.function, place.offset, place.size, exact)


def _address(known: Threads, cause: Cause) -> Optional[int]:
    """Return the address that could not be accessed, or None.

    The log has it; if not, the instruction does. x86 keeps it nowhere else: cr2 belongs to the last fault of all.
    """
    trap = cause.trap
    if cause.told.address is not None or trap is None or trap.trap is None:
        return cause.told.address
    if cause.called_from is not None:
        return trap.pc
    if trap_kind(known, trap.trap) not in ("page fault", "general protection"):
        return None
    return operand.address(_instruction(known, trap.pc) or "", trap.registers)


def _trap(known: Threads, cause: Cause) -> list[Fact]:
    """Return the registers of the trap and the code there. Without a trap, return what the log says."""
    frame = cause.trap
    if frame is None:
        return [(Column("logged_pc", title="pc in the log"), cause.told.where)]
    facts: list[Fact] = [
        # A breakpoint saved the address behind it.
        (Column("pc", "address", width=16), known.places.inside(frame)),
        (Column("where"), known.places.describe(known.places.inside(frame))),
        (Column("source"), _source(known, frame)),
        (Column("instruction"), _instruction(known, known.places.inside(frame))),
    ]
    if cause.called_from is not None:
        call = known.code.call_before(cause.called_from.pc)
        at = call[0] if call else cause.called_from.pc
        facts += [
            (Column("call", "address", width=16), at),
            (Column("call_where", title="call from"), known.places.describe(at)),
            (Column("call_source", title="call source"), _source(known, cause.called_from)),
            (Column("call_instruction", title="call instruction"), named(known, call[1]) if call else None),
            (Column("jumped_by", title="jumped by"), jumper(known, call[1], frame.pc) if call else None),
        ]
    facts += [
        (Column(name, "address", width=16), frame.registers[name])
        for name in known.machine.registers
        if name in frame.registers and name != "pc"  # arm64's pc is above
    ]
    return facts


def _place(known: Threads, frame: Optional[Frame]) -> Optional[str]:
    """Return the place of a frame with its line of source, or None."""
    if frame is None:
        return None
    source = known.places.source(frame)
    return known.places.where(frame) + (f" ({source})" if source else "")


def _source(known: Threads, frame: Frame) -> Optional[str]:
    """Return the frame's line of source, with the inlined function, or None."""
    source = known.places.source(frame)
    inlined = inlined_in(known, frame)
    return f"{source} (in {inlined}, inlined)" if source and inlined else source


def _instruction(known: Threads, pc: int) -> Optional[str]:
    """Return the instruction at pc.

    Return its bytes if they are not a known instruction, and None if the dump lacks them.
    """
    code = known.memory.read(pc, _LONGEST_INSTRUCTION)
    if not code:
        return None
    decoded = disassemble(known.machine.name, code, pc)
    return named(known, decoded[0]) if decoded else f"(not an instruction: {code.hex(' ')})"


COMMAND = Command(
    name="panicinfo",
    summary="why the kernel died: cpu, thread, first message, the trapped pc with its instruction and registers",
    description=(
        "message is the first line of what led to the panic, not the message of panic() at the end. The pc and\n"
        "registers are those that the processor saved when it trapped. If panic was called without a trap (sysrq),\n"
        "the output says who called it. If the stack goes through a kprobe, a callback of ftrace or a BPF program,\n"
        "all of these are listed. Without vmlinux and BTF, panicinfo shows the log and VMCOREINFO."
    ),
    run=run,
    arguments=(
        Argument(
            "-v",
            "--verbose",
            action="store_true",
            help="also show all loaded modules; without vmlinux and BTF: the whole log",
        ),
    ),
    requires=(KERNEL, BARE_KERNEL),
    examples=(("panicinfo", "the first thing to look at in any vmcore"),),
)
