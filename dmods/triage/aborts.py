"""Tell why a process ended itself: by malloc, an assertion, an exception, a panic, or its own call of abort()."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from dmods.finding import CERTAIN, LIKELY, POSSIBLE, CannotCheck, Evidence, Finding, Hands, fatal
from dmods.heap.block import FREE, Block
from dmods.heap.damage import Damage, damages
from dmods.process import signals
from dmods.process.mappings import mapping_at
from dmods.records.last_words import last_words_sentence
from dmods.target import Signal
from dmods.triage.bindings import REMEDY, mix_evidence, mix_sentence, mixes
from dmods.triage.facts import ProcessFacts
from dmods.triage.hands import Held, block_evidence, history, in_allocator
from dmods.triage.languages import cxx, go, rust
from dmods.triage.names import first_own, has, is_runtime

_ONE_OWNER = "set a pointer to NULL when its block is freed, or let one owner free it"
_SECOND_OWNER = (
    "the block was allocated again in between, and its first owner freed it late: for that speaks a block in use with "
    "another content than the caller expects"
)
_STALE = (
    "a stale pointer was used to write there: against it speaks a header that is overwritten from its first byte on"
)
_RECORD = "`dmods run --audit audit,log,guards -- PROG` records who frees and who overruns"


_MISUSES = {
    "overrun": ("heap-overrun", "check the lengths of what is written into that block"),
    "double-free": ("double-free", _ONE_OWNER),
    "invalid-free": ("invalid-free", "free the pointer that malloc returned, and nothing else"),
}

# The messages of glibc's malloc (malloc/malloc.c, all releases since 2.3; the same words since 2.26).
_MALLOC = (
    (r"double free|free\(\): double", "double-free", "a block was freed twice"),
    (
        r"(munmap_chunk|free|realloc)\(\): invalid (pointer|size)|realloc\(\): invalid old size",
        "invalid-free",
        "a pointer was freed that malloc did not return, or whose header was overwritten",
    ),
    (
        r"(malloc|free|realloc|calloc|corrupted|munmap_chunk|invalid|break|mremap_chunk|largebin|unlink).*"
        r"(corrupt|unsorted|invalid|mismatch|unaligned|size vs|top|bin|tcache|chunk|list|next|prev|adjusted)",
        "heap-overrun",
        "malloc found its heap damaged",
    ),
)


def explain_abort(facts: ProcessFacts, signal: Signal) -> Finding:
    """Return why the process ended itself."""
    if signal.number == signals.SIGSYS:
        what = f"{facts.own_place()} made a system call that seccomp forbids"
        or_ = "the program was made to call it (an attack): for that speaks a stack that does not lead to its code"
        return fatal("forbidden-call", CERTAIN, what, "allow the call, or do not make it", or_=or_)
    for explain in (_by_auditor, go.explain, rust.explain, cxx.explain, _by_libc, _by_memory):
        found = explain(facts)
        if found is not None:
            return found
    message = facts.cause.abort_message
    said = f": {facts.content(message, 'message')}" if message else ""
    remedy = "read the code before the call: it found something wrong"
    or_ = "the memory that the code looked at was overwritten: heapcheck tells of damage"
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
    hands = Hands("the auditor, at the call of free()", f"the block at {at:#x}", evidence.what)
    return fatal(
        kind, CERTAIN, what, remedy, (evidence,), next_=(f"whatis {at:#x}", "heapcheck"), sure=CERTAIN, hands=hands
    )


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
        return fatal("assertion", CERTAIN, what, remedy, or_=or_, hands=Hands(noticed="the assertion"))
    for pattern, kind, words in _MALLOC:
        if re.search(pattern, message):
            return _complaint(facts, kind, words, message)
    return None


def _by_memory(facts: ProcessFacts) -> Optional[Finding]:
    """Return an abort after a failed allocation."""
    grown = facts.exhausted
    if grown is None:
        return None
    what = f"{facts.own_place()} ended the process because malloc failed: {grown}"
    remedy = "find what grows: `owners` names what holds the memory"
    or_ = "errno is left from an earlier call, and the program ended itself for another reason"
    return fatal("out-of-memory", LIKELY, what, remedy, next_=("owners", "suspects"), or_=or_)


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
        hands=Hands("the check of the stack's guard at the function's end", f"the frame of {facts.own_place()}"),
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
        hands=Hands(function, "nothing: the check came before the write", facts.own_place()),
    )


# -- malloc's own complaints ------------------------------------------------------------------------------------------


def _complaint(facts: ProcessFacts, kind: str, words: str, message: str) -> Finding:
    caller, corruption = facts.own_place(), "corruption" in message
    message = facts.content(message, "message")
    try:
        facts.provide("heap")
    except CannotCheck:
        return fatal(kind, LIKELY, f"{words} by {caller} ({message})", _RECORD)
    hands = list(in_allocator(facts))
    found = list(damages(facts.heap))
    # "double free or corruption": malloc cannot tell. A damaged header can.
    if kind == "double-free" and not (corruption and found):
        return _double_free(facts, caller, message, hands)
    if kind == "invalid-free":
        wrong = _mismatch(facts, caller) or _invalid_free(facts, caller, hands, found)
        if wrong is not None or not found:
            return wrong or fatal(kind, CERTAIN, f"{caller}: {words} ({message})", _RECORD)
    return _overrun(facts, caller, message, found, hands)


def _double_free(facts: ProcessFacts, caller: str, message: str, hands: Sequence[Held]) -> Finding:
    heap, word = facts.heap, facts.target.arch.word
    block = next((each.block for each in hands if each.block is not None and each.block.state == FREE), None)
    what = f"{caller} freed a block that was free already"
    if block is not None:
        return fatal(
            "double-free",
            CERTAIN,
            f"{what}: {block.address:#x}, {block.size} bytes{history(facts, block)}",
            _ONE_OWNER + ("" if heap.records else f"; {_RECORD}"),
            (block_evidence(facts, block),),
            next_=(f"whatis {block.address:#x}", "findstack"),
            or_=_SECOND_OWNER,
            hands=Hands(
                f"free(), which {caller} called", f"the block at {block.address:#x}", history(facts, block).lstrip(", ")
            ),
        )
    tops = {row.top for one in heap.heaps for row in one.arena_rows() if row.top is not None}
    merged = next((each.value for each in hands if each.value in tops), None)
    if merged is not None:
        at = Evidence(merged + 2 * word, "it was freed, and is a part of the top chunk")
        return fatal("double-free", CERTAIN, f"{what} ({message})", _ONE_OWNER, (at,), or_=_SECOND_OWNER)
    next_ = ("findstack", "heapcheck")
    return fatal("double-free", CERTAIN, f"{what} ({message})", _RECORD, next_=next_, or_=_SECOND_OWNER)


def _mismatch(facts: ProcessFacts, caller: str) -> Optional[Finding]:
    """Return the finding of a block that another allocator made, where two allocators serve the process."""
    found = mixes(facts.target)
    if not found:
        return None
    what = f"{caller} freed a pointer that this allocator did not return; two allocators are in use: "
    return fatal(
        "allocator-mismatch",
        LIKELY,
        what + mix_sentence(found[0]),
        REMEDY,
        mix_evidence(found[0]),
        or_="the pointer was never one of a block: whatis says where it leads",
        hands=Hands(f"free(), which {caller} called"),
    )


def _invalid_free(
    facts: ProcessFacts, caller: str, hands: Sequence[Held], found: Sequence[Damage]
) -> Optional[Finding]:
    """Return the finding of a pointer that is not the start of a block; None where the block's header is damaged."""
    heap, word = facts.heap, facts.target.arch.word
    best: Optional[tuple[int, int, str]] = None
    damaged = {damage.chunk + 2 * word for damage in found}
    for each in hands:
        if _is_start(heap.block_at(each.value), each.value, damaged):
            continue
        for value in (each.value, each.value + 2 * word):
            if value % word:
                continue
            block = heap.block_at(value)
            mapping = mapping_at(facts.target, value)
            if block is not None and block.address == value:
                if block.address in damaged:
                    return None
                continue
            if mapping is None or "w" not in mapping.flags or (value in heap.owned and block is None):
                continue
            rank, what = _wrong_pointer(facts, value, block)
            if what and (best is None or rank < best[0]):
                best = (rank, value, what)
    if best is None:
        return None
    rank, value, what = best
    return fatal(
        "invalid-free",
        LIKELY if rank < 3 else POSSIBLE,
        f"{caller} freed a pointer that malloc did not return: {what}",
        "free the pointer that malloc returned, and nothing else",
        (Evidence(value, what),),
        next_=(f"whatis {value:#x}", "findstack"),
        or_="the pointer is right, and its block's header was overwritten: against it speaks that no header is damaged",
        hands=Hands(f"free(), which {caller} called", what),
    )


def _is_start(block: Optional[Block], value: int, damaged: set[int]) -> bool:
    """Return whether a sound block begins at the value: such a pointer can be freed."""
    return block is not None and block.address == value and value not in damaged


def _wrong_pointer(facts: ProcessFacts, value: int, block: Optional[Block]) -> tuple[int, str]:
    """Return how likely the value is what was freed (less is more), and what it is; "" where it is not."""
    if block is not None:
        return 1, f"it lies {value - block.address:#x} bytes into a block of {block.size} bytes"
    places = facts.finder.at(value)
    kinds = {place.kind for place in places}
    own = first_own(facts.names)
    frames = facts.frames
    brief = facts.finder.brief(value)
    if "module" in kinds and not is_runtime(brief):
        return 2, f"it is {brief}"
    if "stack" in kinds and own is not None and frames[own].sp <= value < _outermost_own(facts):
        return 3, "it lies on the stack"
    return 9, ""


def _outermost_own(facts: ProcessFacts) -> int:
    """Return where the frames of the program end. Above lie the arguments, to which many registers point."""
    own = [index for index, place in enumerate(facts.names) if not is_runtime(place)]
    following = own[-1] + 1 if own else 0
    return facts.frames[following].sp if own and following < len(facts.frames) else 0


def _overrun(facts: ProcessFacts, caller: str, message: str, found: Sequence[Damage], hands: Sequence[Held]) -> Finding:
    touched = {each.value for each in hands}
    nearest = sorted(found, key=lambda damage: (damage.chunk not in touched, damage.chunk))
    if not nearest:
        return fatal(
            "heap-damage",
            CERTAIN,
            f"malloc found its heap damaged when {caller} called it ({message})",
            _RECORD,
            next_=("heapcheck", "findstack"),
            or_=_STALE,
            hands=Hands(f"malloc, which {caller} called"),
        )
    damage = nearest[0]
    suspect = damage.suspect
    evidence = [Evidence(damage.chunk, facts.damage(damage))]
    what = f"malloc found its heap damaged when {caller} called it"
    if suspect is not None:
        evidence.insert(0, block_evidence(facts, suspect))
        what = (
            f"the block at {suspect.address:#x} ({suspect.size} bytes{history(facts, suspect)}) was written beyond its "
            f"bounds; malloc found it when {caller} called it"
        )
    kind = "heap-overrun" if suspect is not None else "heap-damage"
    return fatal(
        kind,
        LIKELY if suspect is not None else CERTAIN,
        what,
        "check the lengths of what is written into that block" + ("" if facts.heap.records else f"; {_RECORD}"),
        evidence,
        next_=(f"whatis {suspect.address:#x}", "heapcheck") if suspect is not None else ("heapcheck", "findstack"),
        or_=_STALE,
        hands=Hands(
            f"malloc, which {caller} called",
            f"the chunk at {damage.chunk:#x}",
            f"whoever writes to the block at {suspect.address:#x}{history(facts, suspect)}" if suspect else "",
        ),
    )
