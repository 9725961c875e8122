"""Damage of the heap, as `heapcheck` finds it."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.allocators.vocabulary import OVERWRITTEN
from dmods.finding import CERTAIN, POSSIBLE, SERIOUS, Check, Evidence, Finding, Measured, Parties, Said, least_sure
from dmods.heap.damage import damages
from dmods.heap.guards import AFTER, verify
from dmods.records.model import Transaction
from dmods.triage.facts import ProcessFacts
from dmods.triage.held_blocks import block_evidence, history

_MOST = 3  # places of evidence


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield damaged chunks, then overwritten guards, then damaged lists."""
    heap = facts.heap
    blocks = sum(used + free for _size, used, free, _own in heap.index.engine.sizes())
    yield Measured(f"the headers and lists of {_count(blocks)} were compared")
    yield from _guards(facts)
    found = list(damages(heap))
    if found:
        first = found[0]
        evidence = [Evidence(damage.chunk, facts.damage(damage)) for damage in found[:_MOST]]
        who = ""
        if first.suspect is not None:
            evidence.insert(0, block_evidence(facts, first.suspect))
            who = (
                f"; the block at {first.suspect.address:#x} ({first.suspect.size} bytes"
                f"{history(facts, first.suspect)}) was probably written beyond its bounds"
            )
        count = f"{len(found)} chunks of the heap are damaged" if len(found) > 1 else "a chunk of the heap is damaged"
        yield _finding("heap-damage", least_sure(found), count + who, evidence, f"the chunk at {first.chunk:#x}")
        return
    checked = [one.check() for one in heap.heaps]
    wrong = [each for one in checked for each in (*one.structures, *one.links)]
    if wrong:
        evidence = [
            Evidence(one.address, f"{one.where}: {one.what}") for one in wrong[:_MOST] if one.address is not None
        ]
        count = "1 place" if len(wrong) == 1 else f"{len(wrong)} places"
        what = f"the allocator's own lists are damaged in {count}: {wrong[0].where}: {wrong[0].what}"
        yield _finding("list-damage", least_sure(wrong), what, evidence, wrong[0].where)


def _count(blocks: int) -> str:
    return "1 block" if blocks == 1 else f"{blocks:,} blocks"


def _finding(kind: str, confidence: str, what: str, evidence: list[Evidence], hurt: str) -> Finding:
    return Finding(
        kind,
        SERIOUS,
        confidence,
        what,
        OVERWRITTEN,
        tuple(evidence),
        ("heapcheck",),
        remedy_confidence=POSSIBLE,
        alternative="the process was dumped in the middle of malloc or free; a locked arena would be evidence for this",
        parties=Parties("only dmods, in this dump", hurt),
    )


def _guards(facts: ProcessFacts) -> Iterator[Finding]:
    """Yield the blocks whose guards were overwritten, where the program ran with guards."""
    found = verify(facts.target)
    if found is None or not found.blocks:
        return
    first = found.blocks[0]
    entry = first.entry
    if first.side == AFTER:
        by = facts.callers.caller(entry.stack).text
        what = f"{len(first.changes[0].found)} bytes were written beyond a block of {first.requested} bytes from {by}"
        kind = "heap-overrun"
    else:
        by = facts.callers.caller(entry.stack).text
        freed = "freed by " if isinstance(entry, Transaction) else "allocated by "
        what = f"a freed block of {first.requested} bytes, {freed}{by}, was written"
        kind = "write-after-free"
    more = f" ({found.damaged} blocks in all)" if found.damaged > 1 else ""
    evidence = [Evidence(first.address, what)]
    yield _finding(kind, CERTAIN, what + more, evidence, f"the block at {first.address:#x}")


CHECK = Check(
    "damage", "a chunk header, a free list or a guard that contradicts the others", run, needs=("heap",), seconds=60
)
