"""Tell why a process ended itself: by malloc, an assertion, an exception, a panic, or its own call of abort()."""

from __future__ import annotations

import re
from typing import Optional

from dmods.finding import CERTAIN, POSSIBLE, Evidence, Finding, Parties, fatal
from dmods.process import signals
from dmods.records.last_words import first_free, last_words_sentence, owner_of
from dmods.records.model import LastWords
from dmods.target import Signal
from dmods.triage.complaints import explain_complaint
from dmods.triage.facts import ProcessFacts
from dmods.triage.failed_malloc import checked
from dmods.triage.languages import cxx, go, rust
from dmods.triage.misuse import ONE_OWNER
from dmods.triage.names import has

_MISUSES = {
    "overrun": ("heap-overrun", "check the lengths of what is written into that block"),
    "double-free": ("double-free", ONE_OWNER),
    "invalid-free": ("invalid-free", "free the pointer that malloc returned, and nothing else"),
}


def explain_abort(facts: ProcessFacts, signal: Signal) -> Finding:
    """Return why the process ended itself."""
    if signal.number == signals.SIGSYS:
        what = f"{facts.own_place()} made a system call that seccomp forbids"
        or_ = (
            "the program was made to call it (an attack); a stack that does not lead to its code would be evidence "
            "for this"
        )
        return fatal("forbidden-call", CERTAIN, what, "allow the call, or do not make it", or_=or_)
    for explain in (_by_auditor, go.explain, rust.explain, cxx.explain, _by_libc, _by_memory):
        found = explain(facts)
        if found is not None:
            return found
    message = facts.cause.abort_message
    said = f": {facts.content(message, 'message')}" if message else ""
    remedy = "read the code before the call: it found something wrong"
    or_ = "the memory that the code looked at was overwritten: heapcheck tells of damage"
    if facts.exhausted is not None:
        or_ = f"malloc failed before: {facts.exhausted}; an earlier call may have left that errno"
    return fatal("abort", CERTAIN, f"{facts.own_place()} called abort(){said}", remedy, sure=POSSIBLE, or_=or_)


def _by_auditor(facts: ProcessFacts) -> Optional[Finding]:
    """Return the misuse of a block for which the auditor stopped the program."""
    records = facts.heap.records
    words = records.last_words
    if words is None or not has(facts.names, r"(guards_check|abort_program|guards_stop_bad_free)"):
        return None
    kind, remedy = _MISUSES[words.kind]
    at = words.block if words.block is not None else words.address
    evidence = Evidence(at, last_words_sentence(facts.callers, records, words))
    what = f"{facts.own_place()} freed a block, and the auditor stopped it: {evidence.what}"
    parties = Parties("the auditor, at the call of free()", f"the block at {at:#x}", _culprit(facts, words))
    return fatal(
        kind, CERTAIN, what, remedy, (evidence,), next_=(f"whatis {at:#x}", "heapcheck"), sure=CERTAIN, parties=parties
    )


def _culprit(facts: ProcessFacts, words: LastWords) -> str:
    """Return who wrote beyond the block, or freed it before; "" where the records do not say it."""
    records, callers = facts.heap.records, facts.callers
    if words.kind == "double-free":
        first = first_free(records, words)
        return f"{callers.caller(first).text}, which freed it first" if first is not None and first.frames else ""
    owner = owner_of(records, words) if words.kind == "overrun" else None
    by = f", allocated by {callers.caller(owner).text}" if owner is not None else ""
    return f"whoever writes to the block{by}" if words.kind == "overrun" else ""


def _by_libc(facts: ProcessFacts) -> Optional[Finding]:
    """Return what the C library complained of: the stack, an object, an assertion, or the heap."""
    message, names = facts.cause.abort_message or "", facts.names
    if message.startswith("*** stack smashing") or has(names, r"__stack_chk_fail"):
        return _smashed(facts)
    if "buffer overflow detected" in message or has(names, r"__(fortify_fail|chk_fail)"):
        return _fortified(facts)
    if re.search(r"Assertion .* failed", message, re.DOTALL) or has(names, r"__assert"):
        what = f"an assertion failed in {facts.own_place()}{_assertion(facts, message)}"
        remedy = "the condition says what the program expects: find who broke it"
        or_ = "the memory that the condition reads was overwritten: heapcheck tells of damage"
        return fatal("assertion", CERTAIN, what, remedy, or_=or_, parties=Parties(noticed="the assertion"))
    return explain_complaint(facts, message)


def _by_memory(facts: ProcessFacts) -> Optional[Finding]:
    """Return an abort after a failed allocation."""
    failed, grown = checked(facts), facts.exhausted
    if failed is None:
        return None
    why = f"because {failed.function} returned NULL" + (f": {grown}" if grown else "")
    what = f"{facts.own_place()} ended the process {why}"
    remedy = "find what grows: `owners` names what holds the memory"
    or_ = f"the size that {failed.function} was asked for is wrong: look at the line of the call"
    return fatal("out-of-memory", failed.confidence, what, remedy, next_=("owners", "suspects"), or_=or_)


def _assertion(facts: ProcessFacts, message: str) -> str:
    """Return what failed, without the program's name: glibc writes "PROG: FILE:LINE: FUNCTION: Assertion ..."."""
    found = re.search(r"([^:\s]+:\d+): (.*?): Assertion [`'](.*)' failed", message, re.DOTALL)
    return f": {facts.content(found[3], 'condition')} ({found[1]})" if found is not None else ""


def _smashed(facts: ProcessFacts) -> Finding:
    return fatal(
        "stack-smash",
        CERTAIN,
        f"an array on the stack of {facts.own_place()} was written beyond its end",
        "check the length of what that function copies into its local arrays",
        or_="a function that it called got a pointer to its array, and wrote too much",
        parties=Parties("the check of the stack's guard at the function's end", f"the frame of {facts.own_place()}"),
    )


def _fortified(facts: ProcessFacts) -> Finding:
    by = has(facts.names, r"__\w+_chk$")
    function = f"{by.strip('_').replace('_chk', '')}()" if by else "a checked function of the C library"
    return fatal(
        "buffer-overflow",
        CERTAIN,
        f"{function} would have written beyond the end of an object in {facts.own_place()}",
        "give the function the size of the object, or make it larger",
        sure=CERTAIN,
        or_="the object is as large as it must be, and the text is wrong (no NUL at its end)",
        parties=Parties(function, "nothing: the check came before the write", facts.own_place()),
    )
