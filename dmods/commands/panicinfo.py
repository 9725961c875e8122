"""Say why the process died."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Optional

from dmods._engine import disassemble
from dmods.command import Argument, Command, positive
from dmods.commands import findstack
from dmods.commands._registers import REGISTERS, registers_table
from dmods.corefile.context import context_lines, crash_context
from dmods.finding import CERTAIN, CannotCheck, Finding
from dmods.heap.heap import find_heap
from dmods.process import signals
from dmods.process.cause import explain_address, find_cause
from dmods.process.unwind import describe
from dmods.records.callers import Callers
from dmods.records.last_words import last_words_sentence
from dmods.report import Column, Report, Schema, Value
from dmods.target import Target
from dmods.triage.checks import death
from dmods.triage.facts import ProcessFacts

_LONGEST_INSTRUCTION = 15  # of x86 (Intel SDM volume 2, 2.3.11)

_KNOWN = "where it is known"
_FRAME = "where the thread has a frame"
_PANICINFO = Schema(
    "panicinfo",
    "the thread and the cause of its death",
    (
        Column("auditor", when="where the auditor stopped the program", about="why it did"),
        Column("thread", "count"),
        Column("name", null="it is not known"),
        Column("message"),
        Column("why", when=_KNOWN, about="the first finding of `triage`"),
        Column("signal", null="no signal is known"),
        Column("ended_by", title="ended by", when="where a handler ran before", about="the last signal"),
        Column("abort_message", title="abort message", when=_KNOWN),
        Column("address", "address", width=16, when="where the signal has one"),
        Column("what", when=_KNOWN, about="what the address is"),
        Column("pc", "address", width=16, when=_FRAME),
        Column("where", when=_FRAME),
        Column("instruction", when=_FRAME, null="the dump does not have it"),
        Column("*", "address", width=16, when=_FRAME, about="each register by its name"),
    ),
)
_KEPT = Schema(
    "kept",
    "what systemd, apport, abrt or /proc knows of the process",
    tuple(
        Column(name, title=name.replace("_", " "), when=_KNOWN)
        for name in (
            *("told_by", "kept_by", "signal", "unit", "user_unit", "slice", "cgroup", "container", "package"),
            *("hostname", "cwd", "root", "cmdline", "limits", "open_files", "mappings", "not_read"),
        )
    ),
    when="where one of them knows it",
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the cause of death, the thread, and the crash's registers and stack."""
    found = find_cause(target)
    frame, thread = found.frame, found.thread
    facts: list[tuple[str, Value]] = [
        ("thread", thread.tid),
        ("name", thread.name),
        ("message", found.message),
        *_why(target),
        ("signal", signals.describe(found.trap) if found.trap else None),
    ]
    if found.handled and found.signal:
        facts.append(("ended_by", signals.describe(found.signal)))
    records = find_heap(target).records
    if records.last_words is not None:
        sentence = last_words_sentence(Callers(target), records, records.last_words)
        facts.insert(0, ("auditor", sentence))
    if found.abort_message:
        facts.append(("abort_message", found.abort_message))
    if found.trap is not None and found.trap.address is not None:
        facts.append(("address", found.trap.address))
    explained = explain_address(target, found)
    if explained:
        facts.append(("what", explained))
    if frame is not None:
        instruction = _instruction(target, frame.pc)
        facts += [
            ("pc", frame.pc),
            ("where", describe(target, frame)),
            ("instruction", instruction),
        ]
        known = frame.registers if found.handled else thread.registers
        facts += [(name, known[name]) for name in target.arch.registers if name in known and name != target.arch.pc]
    tables = [_PANICINFO.record(facts)]
    notes: list[str] = []
    if frame is not None:
        pointees = registers_table(target, known, instruction)
        tables += [pointees] if pointees is not None else []
        notes += find_heap(target).records.notes
    kept = crash_context(target)
    if kept is not None:
        tables.append(_KEPT.record(context_lines(kept)))
    stack = findstack.COMMAND
    tables += stack.run(target, stack.parser().parse_args(["-n", str(args.limit)] if args.limit else [])).tables
    return Report(tables, notes=notes)


def _why(target: Target) -> Iterator[tuple[str, Value]]:
    """Yield why the process died, as `triage` says it: an exception with its text, a panic, an assertion, a misuse."""
    try:
        said = death.run(ProcessFacts(target))
        found = next((each for each in said if isinstance(each, Finding)), None)
    except CannotCheck:
        return
    if found is not None:
        yield "why", found.what if found.confidence == CERTAIN else f"{found.confidence}: {found.what}"


def _instruction(target: Target, pc: int) -> Optional[str]:
    """Return the instruction at pc, or its bytes if they are not an instruction. None: the dump does not have them."""
    code = target.image().read(pc, _LONGEST_INSTRUCTION)
    if not code:
        return None
    decoded = disassemble(target.arch.name, code, pc)
    return decoded[0] if decoded else f"(not an instruction: {code.hex(' ')})"


COMMAND = Command(
    name="panicinfo",
    summary="why it died: signal, faulting address, pc and instruction, registers and what they point to, stack",
    description=(
        "If a signal handler ran first (and called abort, for example), the fault before the handler is shown. Its pc\n"
        "and registers are those that the kernel saved in the signal frame.\n"
        "WHY is the first finding of `triage`: an exception of C++ with its text, a panic, a failed assertion.\n"
        "A line for each register that matters says what it points to. Registers that the instruction uses come\n"
        "first. Blocks say who freed or allocated them, where allocations were recorded. Then follows what systemd,\n"
        "apport or abrt knows of a core that it keeps, or /proc of a live process: unit, container, package, command\n"
        "line, limits, open files. The stack of the thread comes last, as `findstack` prints it."
    ),
    run=run,
    tables=(_PANICINFO, REGISTERS, _KEPT, findstack.THREADS),
    arguments=(Argument("-n", "--limit", type=positive, metavar="N", help="at most N frames of the stack"),),
    examples=(("panicinfo", "the first thing to look at in any core"),),
)
