"""Why the process died: the kind of its fault, and the memory that had to do with it."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import Check, Finding, Measured, Said
from dmods.process import signals
from dmods.triage.aborts import explain_abort
from dmods.triage.facts import ProcessFacts
from dmods.triage.faults import explain_fault, unexplained_fault


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield one finding for a process that died by its own fault."""
    yield Measured(facts.cause.message)
    yield from explained(facts)


def explained(facts: ProcessFacts) -> Iterator[Finding]:
    """Yield the finding."""
    signal = facts.cause.trap or facts.cause.signal
    if signal is None:
        return
    if signal.number == signals.SIGTRAP and not _is_breakpoint(facts):
        return  # a debugger stopped the process, and dumped it
    if signals.is_fault(signal):
        yield explain_fault(facts, signal)
        return
    if signal.code is None and signal.number in signals.FAULTS:
        yield unexplained_fault(facts, signal)
        return
    if signal.sender in (None, 0, facts.target.pid) and signal.number in (signals.SIGABRT, signals.SIGSYS):
        yield explain_abort(facts, signal)
    elif signal.number == signals.SIGSEGV and signal.code == signals.SI_KERNEL:
        yield explain_fault(facts, signal)


def _is_breakpoint(facts: ProcessFacts) -> bool:
    """Return whether a breakpoint of the program itself trapped: int3 ends before the pc, brk lies there."""
    frame = facts.cause.frame
    if frame is None:
        return False
    image = facts.target.image()
    if facts.target.arch.name == "aarch64":
        word = int.from_bytes(image.read(frame.pc, 4), "little")
        return word & 0xFFE0001F == 0xD4200000  # Arm ARM, C6.2: BRK #imm16
    return image.read(frame.pc - 1, 1) == b"\xcc"


CHECK = Check(
    "death",
    "the process ended itself or an instruction of it trapped; a signal from another process is no fault of it",
    run,
    needs=("cause",),
    seconds=60,
)
