"""Tell what made glibc's malloc abort: a pointer that it cannot free, an overrun, or a write into freed memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from dmods.finding import CERTAIN, LIKELY, POSSIBLE, CannotCheck, Evidence, Finding, Parties, fatal
from dmods.heap.block import FREE
from dmods.heap.damage import Damage, damages
from dmods.triage.facts import ProcessFacts
from dmods.triage.freed import Freed, freed_memory
from dmods.triage.given import Given, given_pointer
from dmods.triage.held_blocks import Held, block_evidence, history, in_allocator
from dmods.triage.misuse import ONE_OWNER, RECORD, SECOND_OWNER, double_free, judge, mixed

_STALE = (
    "a stale pointer was used to write there; a header that is overwritten from its first byte on would be evidence "
    "against this"
)

# The messages of glibc's malloc (malloc/malloc.c, all releases since 2.3; the same words since 2.26).
_MESSAGES = (
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
# These say that the chunk is on a list, or is the top chunk. "(out)" and "(!prev)" compare headers only.
_PROOF = re.compile(r"double free detected in tcache|\((fasttop|top)\)")


def explain_complaint(facts: ProcessFacts, message: str) -> Optional[Finding]:
    """Return what malloc's message means in this process; None for a message of anything else."""
    for pattern, kind, words in _MESSAGES:
        if re.search(pattern, message):
            return _explained(facts, kind, words, message)
    return None


def _explained(facts: ProcessFacts, kind: str, words: str, message: str) -> Finding:
    caller = facts.own_place()
    shown = facts.content(message, "message")
    try:
        facts.provide("heap")
    except CannotCheck:
        return fatal(kind, LIKELY, f"{words} by {caller} ({shown})", RECORD)
    found = list(damages(facts.heap))
    given, is_free = given_pointer(facts, message), _PROOF.search(message) is not None
    may_be_free = kind != "heap-overrun"  # the other checks come after that of a second free
    wrong = judge(facts, given, found, may_be_free, is_free) if given is not None else None
    if wrong is not None:
        return wrong
    if may_be_free and (is_free or not found):
        return _unnamed(facts, kind, words, message, given)
    return _damaged(facts, caller, shown, found)


def _unnamed(facts: ProcessFacts, kind: str, words: str, message: str, given: Optional[Given]) -> Finding:
    """Return what the message alone says, where no pointer is known that is wrong, and no header is damaged."""
    caller = facts.own_place()
    shown = facts.content(message, "message")
    held = next((each for each in in_allocator(facts) if each.block is not None and each.block.state == FREE), None)
    proven = _PROOF.search(message) is not None
    guessed = given is None and "(out)" not in message
    if kind == "double-free" and held is not None and held.block is not None and (proven or guessed):
        freed = freed_memory(facts, held.block.address)
        if freed is not None:
            return double_free(facts, Given(held.block.address, proven), freed, proven)
    next_ = ("findstack", "heapcheck")
    if kind == "double-free" and proven:
        what = f"{caller} freed a block that was free already ({shown})"
        return fatal(kind, CERTAIN, what, f"{ONE_OWNER}; {RECORD}", next_=next_, or_=SECOND_OWNER)
    if kind == "double-free":
        what = f"{caller} freed a block that was free already, or memory that malloc did not return ({shown})"
        return fatal(kind, POSSIBLE, what, RECORD, next_=next_, or_=SECOND_OWNER)
    other = mixed(facts) if given is None else None
    return other or fatal(kind, LIKELY, f"{caller}: {words} ({shown})", RECORD, next_=next_)


def explain_damage(facts: ProcessFacts, found: Sequence[Damage]) -> Optional[Finding]:
    """Return the damage that malloc met: a header, or else the links of a free block; None where all is sound."""
    caller = facts.own_place()
    if found:
        return _overrun(facts, caller, found, list(in_allocator(facts)))
    return _written_after_free(facts, caller)


def _damaged(facts: ProcessFacts, caller: str, message: str, found: Sequence[Damage]) -> Finding:
    """Return the damage that malloc noticed, or its message alone."""
    known = explain_damage(facts, found)
    if known is not None:
        return known
    return fatal(
        "heap-damage",
        CERTAIN,
        f"malloc found its heap damaged when {caller} called it ({message})",
        RECORD,
        next_=("heapcheck", "findstack"),
        or_=_STALE,
        parties=Parties(f"malloc, which {caller} called"),
    )


def _written_after_free(facts: ProcessFacts, caller: str) -> Optional[Finding]:
    """Return the finding of a free block whose links were overwritten, while its header is sound; or None."""
    word = facts.target.arch.word
    links = [link for one in facts.heap.heaps for link in one.check().links]
    # A link has the address of a chunk, or of its block.
    places = [(link, link.address + offset) for link in links if link.address is not None for offset in (0, 2 * word)]
    for link, at in places:
        block = facts.heap.index.block_at(at)
        freed = freed_memory(facts, at) if block is not None and block.address == at else None
        if freed is not None:
            past = f"{freed.history}," if freed.history else ""
            what = f"{freed.what} at {freed.start:#x}{past} was written after it was freed"
            return _late_write(facts, caller, f"{what} ({link.where}: {link.what})", freed)
    # A bad link at the head of a list stood in a block that malloc has taken off the list.
    head = next((link for link in links if link.address is None), None)
    if head is None:
        return None
    what = "a freed block was written after it was freed, and malloc has taken it off its list since"
    return _late_write(facts, caller, f"{what} ({head.where}: {head.what})", None)


def _late_write(facts: ProcessFacts, caller: str, what: str, freed: Optional[Freed]) -> Finding:
    hurt = freed.hurt if freed is not None else ""
    return fatal(
        "write-after-free",
        LIKELY,
        f"{what}; malloc found it when {caller} called it",
        "find who keeps a pointer to the block and writes to it" + ("" if facts.heap.records else f"; {RECORD}"),
        (freed.evidence,) if freed is not None else (),
        next_=(f"whatis {freed.known:#x}", "heapcheck") if freed is not None else ("heapcheck", "findstack"),
        sure=POSSIBLE,
        or_="a block before was written far beyond its end; sound headers between would be evidence against this",
        parties=Parties(
            f"malloc, which {caller} called", hurt, f"whoever still has a pointer to {hurt}" if hurt else ""
        ),
    )


def _overrun(facts: ProcessFacts, caller: str, found: Sequence[Damage], held: Sequence[Held]) -> Finding:
    touched = {each.value for each in held}
    damage = min(found, key=lambda each: (each.chunk not in touched, each.chunk))
    suspect = damage.suspect
    evidence = [Evidence(damage.chunk, facts.damage(damage))]
    what = f"malloc found its heap damaged when {caller} called it"
    if suspect is not None:
        evidence.insert(0, block_evidence(facts, suspect))
        what = (
            f"the block at {suspect.address:#x} ({suspect.size} bytes{history(facts, suspect)}) was written beyond its "
            f"bounds; malloc found it when {caller} called it"
        )
    return fatal(
        "heap-overrun" if suspect is not None else "heap-damage",
        LIKELY if suspect is not None else CERTAIN,
        what,
        "check the lengths of what is written into that block" + ("" if facts.heap.records else f"; {RECORD}"),
        evidence,
        next_=(f"whatis {suspect.address:#x}", "heapcheck") if suspect is not None else ("heapcheck", "findstack"),
        or_=_STALE,
        parties=Parties(
            f"malloc, which {caller} called",
            f"the chunk at {damage.chunk:#x}",
            f"whoever writes to the block at {suspect.address:#x}{history(facts, suspect)}" if suspect else "",
        ),
    )
