"""Why the process died."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods import cause, signals, stacks
from dmods._engine import disassemble
from dmods.command import Command
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

_LONGEST_INSTRUCTION = 15  # of x86 (Intel SDM volume 2, 2.3.11)


def run(target: Target, args: argparse.Namespace) -> Report:
    found = cause.find(target)
    frame, thread = found.frame, found.thread
    facts: list[tuple[Column, Value]] = [
        (Column("thread", "count"), thread.tid),
        (Column("name"), thread.name),
        (Column("message"), found.message),
        (Column("signal"), signals.describe(found.trap) if found.trap else None),
    ]
    if found.handled and found.signal:
        facts.append((Column("ended_by", title="ended by"), signals.describe(found.signal)))
    if found.abort_message:
        facts.append((Column("abort_message", title="abort message"), found.abort_message))
    if found.trap is not None and found.trap.address is not None:
        facts.append((Column("address", "address", width=16), found.trap.address))
    explained = cause.explain_address(target, found)
    if explained:
        facts.append((Column("what"), explained))
    if frame is not None:
        facts += [
            (Column("pc", "address", width=16), frame.pc),
            (Column("where"), stacks.describe(target, frame)),
            (Column("instruction"), _instruction(target, frame.pc)),
        ]
        known = frame.registers if found.handled else thread.registers
        facts += [
            (Column(name, "address", width=16), known[name])
            for name in target.arch.registers
            if name in known and name != target.arch.pc
        ]
    columns = [Column(c.name, c.kind, c.width, c.title or c.name) for c, _value in facts]
    table = Table("panicinfo", columns, [tuple(value for _column, value in facts)], style="record")
    return Report([table])


def _instruction(target: Target, pc: int) -> Optional[str]:
    """The instruction at pc; its bytes where they are none that is known; None where the dump does not hold it."""
    code = target.image().read(pc, _LONGEST_INSTRUCTION)
    if not code:
        return None
    decoded = disassemble(target.arch.name, code, pc)
    return decoded[0] if decoded else f"(not an instruction: {code.hex(' ')})"


COMMAND = Command(
    name="panicinfo",
    summary="why it died: signal, faulting address, thread, the trapped pc with its instruction, registers",
    description=(
        "When a handler ran first (and called abort, say), what is shown is the fault that it was called for:\n"
        "its pc and registers are those that the kernel saved in the signal frame."
    ),
    run=run,
    examples=(("panicinfo", "the first thing to look at in any core"),),
)
