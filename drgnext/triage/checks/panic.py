"""Why the kernel died."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import CERTAIN, FATAL, LIKELY, POSSIBLE, CannotCheck, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.crash.oom import oom_lines
from drgnext.kernel.crash.outcome import SENTENCES
from drgnext.triage.deaths import kind_of, was_asked
from drgnext.triage.facts import KernelFacts

_READ = "read the function at the trapped pc; its registers are in panicinfo"
_JUMPED = "find where the function pointer or the return address was overwritten; the frame that jumped is in panicinfo"
_MEMORY = "find what holds the memory: ps says who, and the limit above it; memstat -v says which kind of pages"
_LOG_LOST = "copy or take the dump again, whole: its log says why"


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the cause of a panic. A crash that someone asked for has no cause to tell."""
    cause = facts.cause
    told = cause.told
    if cause.died is None:
        raise CannotCheck(SENTENCES[None])
    message = told.message or told.panic or (SENTENCES[True] if cause.died else None)
    asked = message is not None and _asked(facts)
    yield Measured("someone asked for the crash" if asked else message or SENTENCES[False])
    if message is None or asked:
        return
    kind = kind_of(message, told.details)
    known = facts.threads
    frame = cause.trap or cause.caller
    where, evidence = "", []
    if kind == "out-of-memory":
        yield _without_memory("; ".join((message, *oom_lines(told.details))))
        return
    if frame is not None:
        pc = known.places.inside(frame)
        place, source = known.places.describe(pc), known.places.source(frame)
        where = f" in {place}{f' ({source})' if source else ''}"
        evidence.append(Evidence(pc, place))
    elif told.where is not None:
        where = f" in {told.where}"
    if told.address is not None:
        evidence.append(Evidence(told.address, "the address that was accessed"))
    who = cause.task or (told.death if told.death is not None and told.death.comm is not None else None)
    task = f", in task {who.comm} ({who.pid})" if who is not None else ""
    yield Finding(
        kind,
        FATAL,
        CERTAIN,
        "; ".join((f"{message}{where}{task}", *oom_lines(told.details))),
        _remedy(facts, message),
        evidence,
        ("panicinfo", "findstack"),
        remedy_confidence=POSSIBLE,
        alternative="other code damaged the memory that this function used; taints, or damage that slabcheck finds, "
        "would be evidence for this",
    )


def _remedy(facts: KernelFacts, message: str) -> str:
    """Return what to do. At a pc where no code is, there is no function to read."""
    if message == SENTENCES[True]:
        return _LOG_LOST
    trap = facts.cause.trap
    nowhere = trap is not None and facts.threads.places.function(trap.pc) is None
    return _JUMPED if facts.cause.called_from is not None or nowhere else _READ


def _without_memory(text: str) -> Finding:
    """Return the finding for a panic of the OOM killer: its function is not at fault, so none is named."""
    return Finding(
        "out-of-memory",
        FATAL,
        CERTAIN,
        text,
        _MEMORY,
        (),
        ("ps --top 10", "memstat -v", "memcgs"),
        remedy_confidence=LIKELY,
        alternative="a limit is too low for the load (memory.max), or the kernel need not panic (vm.panic_on_oom)",
    )


def _asked(facts: KernelFacts) -> bool:
    """Return whether someone asked for the crash: sysrq's handler is on the stack, or the message says so."""
    told, stack = facts.cause.told, facts.cause.stack
    if was_asked(told.panic, told.message):
        return True
    names = [facts.threads.places.describe(frame.pc) for frame in stack.frames] if stack is not None else []
    return any("sysrq_handle_crash" in name for name in names)


CHECK = Check("panic", "the kernel panicked, and nobody asked for it (sysrq)", run, needs=("cause",), seconds=30)
