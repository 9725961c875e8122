"""Why the kernel died."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Optional

from dmods._engine import disassemble
from dmods.command import BARE_KERNEL, KERNEL, Argument, Command
from dmods.report import Column, Report, Schema, Table, Value
from drgnext.commands._bare_panicinfo import LOG, bare_report
from drgnext.commands._from_notes import CPUS, LOG_FRAMES, PANICINFO, Noted, noted_registers, printed_frames, who_died
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

Fact = tuple[str, Value]


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
        ("tainted", modules.tainted(known.prog)),
        ("modules", modules.summary(loaded)),
        ("kernel", modules.release(known.prog)),
    ]
    facts = [(name, value) for name, value in facts if value is not None]
    table = PANICINFO.record(facts)
    tables = [table, *noted.tables, *_first_fault(known, cause)]
    gaps: list[str] = []
    if cause.stack is not None:
        gaps = gap_notes(cause.stack)
        probes = tracers(known, cause.stack)
        if probes:
            left = len(probes) - MOST_TRACERS
            footer = [f"... (and {left} more)"] if left > 0 else []
            title = "tracing, because the stack goes through it:"
            tables.append(TRACING.table(probes[:MOST_TRACERS], title=title, footer=footer))
    if args.verbose:
        rows = [(one.name, one.address, one.size, one.taints) for one in loaded]
        tables.append(MODULES.table(rows))
    return Report(tables, notes=[*known.notes, *cause.notes, *noted.notes, *gaps, *notes])


MOST_TRACERS = 50

TRACING = Schema(
    "tracing",
    "a probe or a program that traces the kernel",
    (
        Column("kind", width=9),
        Column("address", "address", width=16),
        Column("where"),
        Column("calls"),
        Column("how"),
        Column("on_stack", "flag", title="ON STACK"),
    ),
    when="where the stack goes through one",
)
MODULES = Schema(
    "modules",
    "a module that is loaded",
    (
        Column("module", width=24),
        Column("address", "address", width=16),
        Column("size", "bytes"),
        Column("taints", about="letters, or empty"),
    ),
    when="with -v",
)

_KNOWN = "where it is known"
_SURVIVED = "where the kernel survived a fault before"
_FIRST_FAULT = Schema(
    "first_fault",
    "the first fault, as the log has it",
    (
        Column("time", about="since boot, as text"),
        Column("message"),
        Column("details", when=_KNOWN),
        Column("cpu", "count", when=_KNOWN),
        Column("name", when=_KNOWN),
        Column("pid", "count", when=_KNOWN),
        Column("where", when=_KNOWN),
        Column("source", when=_KNOWN),
    ),
    when=_SURVIVED,
)
_FIRST_FAULT_FRAMES = Schema(
    "first_fault_frames",
    "a frame that the kernel printed then",
    (Column("where"), Column("source", about="or empty")),
    when=_SURVIVED,
)


def _who(cause: Cause) -> list[Fact]:
    """Return the facts about the CPU, the task and the messages. The log names a task that the dump lacks."""
    task, death = cause.task, cause.told.death
    cpu = death.cpu if cause.cpu is None and death is not None else cause.cpu
    return [
        ("cpu", cpu),
        ("thread", task.address if task else None),
        *([("name", task.comm), ("pid", task.pid)] if task else who_died(death)[1:]),
        ("message", cause.told.message or (SENTENCES[cause.died] if cause.told.panic is None else None)),
        ("panic", cause.told.panic if cause.told.panic != cause.told.message else None),
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
        ("details", "; ".join(cause.told.details) or None),
        ("address", _address(known, cause)),
    ]
    if trap is not None and trap.trap is not None:
        facts.append(("trap", happened(known, trap.trap)))
        facts.append(("pt_regs", trap.trap.address))
    if trap is None or trap.trap is None or not is_exception(known, trap.trap):
        facts.append(("called_by", _place(known, cause.caller)))
    if cause.stack is not None:
        runs = [repeated(known, cause.stack.frames, run) for run in recursions(cause.stack.frames)]
        facts.append(("recursion", "; ".join(runs) or None))
    return facts


def _first_fault(known: Threads, cause: Cause) -> list[Table]:
    """Return what the log says of the first oops, if the kernel survived it: a record, and its frames."""
    first = cause.told.first
    if first is None:
        return []
    facts: list[Fact] = [
        ("time", f"{first.time:.6f} s"),
        ("message", first.message),
        ("details", "; ".join(first.details) or None),
        ("cpu", first.cpu),
        ("name", first.comm),
        ("pid", first.pid),
        ("where", str(first.pc) if first.pc is not None else None),
        ("source", _line(known, first.pc, True) if first.pc is not None else None),
    ]
    title = "the first fault, which the kernel survived (from its log)"
    rows = [(str(place), _line(known, place, False) or "") for place in first.frames]
    return [
        _FIRST_FAULT.record([(name, value) for name, value in facts if value is not None], title=title),
        _FIRST_FAULT_FRAMES.table(rows, style="plain"),
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
        return [("logged_pc", cause.told.where)]
    facts: list[Fact] = [
        # A breakpoint saved the address behind it.
        ("pc", known.places.inside(frame)),
        ("where", known.places.describe(known.places.inside(frame))),
        ("source", _source(known, frame)),
        ("instruction", _instruction(known, known.places.inside(frame))),
    ]
    if cause.called_from is not None:
        call = known.code.call_before(cause.called_from.pc)
        at = call[0] if call else cause.called_from.pc
        facts += [
            ("call", at),
            ("call_where", known.places.describe(at)),
            ("call_source", _source(known, cause.called_from)),
            ("call_instruction", named(known, call[1]) if call else None),
            ("jumped_by", jumper(known, call[1], frame.pc) if call else None),
        ]
    facts += [
        (name, frame.registers[name])
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
    tables=(PANICINFO, CPUS, LOG_FRAMES, _FIRST_FAULT, _FIRST_FAULT_FRAMES, TRACING, MODULES, LOG),
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
