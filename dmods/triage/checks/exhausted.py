"""The holders of the memory of a process that ran out of it, or whose heap is large."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.sizes import human_size
from dmods.finding import LIKELY, POSSIBLE, SERIOUS, WASTE, Check, Evidence, Finding, Measured, Parties, Said
from dmods.graph.suspects.candidates import find_candidates
from dmods.graph.suspects.process_share import process_memory
from dmods.heap.mapping_content import Content
from dmods.records.mapped import makers
from dmods.triage.checks.death import explained
from dmods.triage.facts import ProcessFacts

LARGE = 1 << 30  # bytes of a heap: if one thing holds half of it, that is worth a word
_HALF = 0.5
_FIFTH = 0.2  # of the memory of a process that ran out of it
_REMEDY = "decide whether it should hold so much: bound it, or drop old entries"


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield the suspects, where the process died of a failed allocation or the heap is large. Others may hold much."""
    hint = facts.exhausted is not None
    failed = hint and any(found.kind == "out-of-memory" for found in explained(facts))
    last = "no allocation failed last" if not hint else "errno is ENOMEM, perhaps from an earlier call"
    last = "the process died of a failed allocation" if failed else last
    large = facts.large_mappings
    beside = f", large mappings outside it {human_size(sum(each.mapping.size for each in large))}" if large else ""
    yield Measured(f"{last}; the heap has {human_size(facts.heap.bytes)}{beside}")
    if failed:
        yield from _mappings(facts)
    if not failed and facts.heap.bytes < LARGE:
        return
    facts.provide("owners")
    held = (one for one in find_candidates(facts.owners, process_memory(facts.owners)) if one.kind in ("held", "type"))
    for suspect in list(held)[:2]:
        if failed or suspect.weight >= _HALF * facts.heap.bytes:
            yield Finding(
                "memory-holder",
                SERIOUS if failed else WASTE,
                LIKELY if failed else POSSIBLE,
                suspect.public if facts.private else suspect.what,
                suspect.remedy,
                (),  # the sentence names the block
                suspect.next,
                weight=suspect.weight,
                remedy_confidence=POSSIBLE,
                alternative="it holds what it should, and the limit is too low for the load",
                parties=Parties(holds=suspect.subject or suspect.what),
                subject=suspect.subject,
            )


def _mappings(facts: ProcessFacts) -> Iterator[Finding]:
    """Yield the memory that no allocator owns, where it is a fifth of all: the largest mapping says what it is."""
    found = facts.large_mappings
    whole = sum(mapping.size for mapping in facts.target.mappings() if mapping.flags != "---")
    size = sum(each.mapping.size for each in found)
    if not found or size < _FIFTH * whole:
        return
    first = found[0]
    what = first.public if facts.private else first.phrase
    mappings = "1 large mapping" if len(found) == 1 else f"{len(found)} large mappings"
    yield Finding(
        "memory-holder",
        SERIOUS,
        LIKELY,
        f"{mappings} outside the heap {'has' if len(found) == 1 else 'have'} {human_size(size)} "
        f"({size / whole:.0%} of all memory)",
        _REMEDY if _maker(facts, first) else "`dmods run --audit audit,maps -- PROG` records who maps memory",
        [Evidence(each.mapping.start, _evidence(facts, each)) for each in found[:3]],
        ("maps --contents",),
        weight=size,
        remedy_confidence=POSSIBLE,
        alternative="they hold what they should, and the limit is too low for the load",
        subject=f"mappings that hold {what}" if found[0].used is not None else "mappings",
    )


def _evidence(facts: ProcessFacts, each: Content) -> str:
    what = each.public if facts.private else each.phrase
    maker = _maker(facts, each)
    return f"{human_size(each.mapping.size)}{f', mapped by {maker}' if maker else ''}: {what}"


def _maker(facts: ProcessFacts, each: Content) -> str:
    made = makers(facts.target, each.mapping)
    return facts.callers.caller(made[0].stack).text if made else ""


CHECK = Check(
    "exhausted",
    "the process died of a failed allocation, and something keeps a fifth of memory; or one thing keeps half of a heap "
    "above 1 GB",
    run,
    needs=("cause", "heap"),
    seconds=120,
)
