"""Tell what a trap has to do with the stack: it overflowed, or the register that leads to it is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Optional

from dmods.base.regex import regex
from dmods.finding import CERTAIN, POSSIBLE, Evidence, Finding, Parties, fatal
from dmods.process.cause import NULL_PAGE, PAST_END
from dmods.process.mappings import mapping_at
from dmods.process.threads import stack_of
from dmods.triage.facts import ProcessFacts
from dmods.triage.names import function_of

_fault = partial(fatal, next_=("findstack", "heapcheck"))
_NEAR = 1 << 16  # bytes between the stack pointer and the address of the trap
# A local variable: below the frame pointer. Code without frame pointers has other things in these registers.
_LOCAL = {"rbp": regex(r"-0x[0-9a-f]+\(%rbp\)"), "x29": regex(r"\[x29, #-")}


def stack_overflow(facts: ProcessFacts, where: str, text: str) -> Finding:
    """Return the finding of a stack overflow, with the functions that recurse."""
    repeated = _recursion(facts.names) if PAST_END not in text else []
    stack = stack_of(facts.target, facts.thread)
    recursion = f": {' and '.join(repeated)} call{'s' if len(repeated) == 1 else ''} itself" if repeated else ""
    recursion = recursion.replace("call itself", "call each other")
    large = "" if repeated else f" in {where}"
    return fatal(
        "stack-overflow",
        CERTAIN,
        f"the stack of thread {facts.thread.tid} overflowed{large}{recursion}",
        "end the recursion" if repeated else "keep large arrays off the stack, or give the thread a larger one",
        (Evidence(stack.start, text),) if stack is not None else (),
        next_=("findstack",),
        or_="the recursion is meant, and its data is deeper than ever before (or has a cycle): look at the arguments"
        if repeated
        else "the calls are as deep as they should be, and the limit of the stack is too low (ulimit -s)",
    )


def _recursion(names: Sequence[str]) -> list[str]:
    """Return the functions that stand again and again on the innermost part of a stack, the most frequent first."""
    counts = Counter(function_of(name) for name in names[:200])
    many = [name for name, count in counts.most_common(4) if count >= 10]
    return many[:3]


def lost_pointer(facts: ProcessFacts, address: Optional[int], where: str) -> Optional[Finding]:
    """Return that the stack pointer, or the frame pointer, leads nowhere, and that the instruction needed it. Or None.

    The processor does not say the address where it is not canonical.
    """
    frame = facts.cause.frame
    if frame is None:
        return None
    if _leads_nowhere(facts, frame.sp) and (address is None or abs(address - frame.sp) < _NEAR):
        return _lost(facts, "stack", facts.target.arch.sp, frame.sp, where)
    for register, local in _LOCAL.items():
        value = frame.registers.get(register)
        if value is not None and _leads_nowhere(facts, value) and local.search(facts.instruction):
            return _lost(facts, "frame", register, value, where)
    return None


def _leads_nowhere(facts: ProcessFacts, value: int) -> bool:
    return value < NULL_PAGE or mapping_at(facts.target, value) is None


def _lost(facts: ProcessFacts, which: str, register: str, value: int, where: str) -> Finding:
    shown = "" if facts.private else f" ({value:#x})"
    return _fault(
        f"lost-{which}-pointer",
        CERTAIN,
        f"the {which} pointer leads nowhere in {where}: {register}{shown} is in no mapping",
        "find the array on the stack that was overrun, in what this function called last: it lies below the saved "
        "frame pointer and the return address",
        (Evidence(value, f"the {which} pointer"),) if not facts.private else (),
        sure=POSSIBLE,
        or_="the program switches stacks itself (coroutines, longjmp), and the context that it restored was freed or "
        "never set",
        parties=Parties(noticed=f"the instruction in {where}", hurt=f"the {which} pointer"),
    )
