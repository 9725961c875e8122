"""Make findings of what grew: at most three, and of memory that grew far more than the blocks in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dmods.allocators.directory import advice
from dmods.base.sizes import counted, human_size
from dmods.finding import LIKELY, POSSIBLE, SERIOUS, WASTE, Evidence, Finding, Measured, Said
from dmods.graph.growth.comparison import STATES, Change, Growth, Memory
from dmods.graph.growth.keys import LEAKED_NAME
from dmods.graph.owners.root_paths import path_to
from dmods.graph.roots.named_roots import named_roots
from dmods.graph.roots.plain_names import RootNames
from dmods.graph.suspects.subject import named_place
from dmods.graph.types.block_types import type_of_block
from dmods.heap.heap import ProcessHeap

_MUCH = 1 << 20  # bytes of growth that are worth a sentence


def growth_findings(found: Growth, names: Sequence[str], last: ProcessHeap) -> list[Said]:
    """Return what grew. ``names`` are those of the cores, the oldest first. ``last`` is the heap of the last one."""
    if found.growth <= 0:
        before, after = found.memory[0].in_use, found.memory[-1].in_use
        if len(names) - 1 in found.partial:
            text = f"It is not known whether the blocks in use grew: {names[-1]} lacks a part of the heap"
            return [Measured(f"{text}. What the dumps have: {before} bytes, then {after}")]
        return [Measured(f"The blocks in use did not grow: {before} bytes, then {after}")]
    suspects = found.suspects()
    if not suspects:
        return [Measured(f"Nothing grew from each core to the next: the {human_size(found.growth)} come and go")]
    return [_finding(each, found, names, last) for each in suspects]


def _finding(change: Change, found: Growth, names: Sequence[str], last: ProcessHeap) -> Finding:
    sizes = " -> ".join(human_size(each.bytes) for each in change.totals)
    share = f"{100 * change.growth / found.growth:.0f} % of the growth" if found.growth > 0 else "while others shrank"
    least = "at least " if len(names) - 1 in found.partial and 0 not in found.partial else ""
    text = f"{_what(change, found.by)} grew by {least}{change.growth} bytes ({sizes}), {share}"
    if found.hours:
        text += f". That is {human_size(round(change.growth / found.hours))} an hour"
    several = len(names) > 2
    if several and found.differs is None:
        text += f". {change.kept.count} blocks are newer than {names[0]} and were kept until {names[-1]}"
    text += _leaks(change) + _example(change, found.by, last)
    example = change.example
    return Finding(
        "growth",
        SERIOUS,
        # Two cores cannot tell a leak that something holds from a cache that fills.
        # What the first core lacks may have been there.
        LIKELY if (several or change.leaks) and 0 not in found.partial else POSSIBLE,
        text,
        "",
        (Evidence(example, "one of the blocks"),) if example is not None else (),
        (f"whatis {example:#x}",) if example is not None else (),
        weight=change.growth,
        subject=change.label,
    )


def _leaks(change: Change) -> str:
    """Return how much of what grew has leaked; "" where that is not known."""
    if not change.leaked or change.label in (LEAKED_NAME, *STATES):
        return ""
    before, after = change.leaked[0], change.leaked[-1]
    if after.bytes <= before.bytes:
        return ". This growth has not leaked: the program still holds these blocks"
    count, of = counted(after.count, "block"), f"of {change.totals[-1].count:,}"
    leaks = ". It leaks: nothing" if change.leaks else ". Nothing"
    return f"{leaks} points to {count} {of} any more ({human_size(before.bytes)} -> {human_size(after.bytes)})"


def _example(change: Change, by: str, last: ProcessHeap) -> str:
    """Return what one of the blocks is, and what leads to it; "" where nothing is known that the key does not say."""
    if change.example is None:
        return ""
    written = type_of_block(last, change.example) if by != "type" or change.shape else ""
    path = path_to(named_roots(last.target), change.example, most=1) if by not in ("owner", "holder") else None
    leads = ""
    if path is not None and path.root is not None and path.steps:
        leads = named_place(RootNames(named_roots(last.target)), path.root, path.steps[0].holder)
    said = [f"one is a {written}" if written else "", f"{leads} leads to {'it' if written else 'one'}" if leads else ""]
    text = ", and ".join(filter(None, said))
    return f". {text[0].upper()}{text[1:]}" if text else ""


def replaced(found: Growth) -> list[str]:
    """Return what was a suspect, but for other stacks that lost as much of its type."""
    return [
        f"what {change.label} allocated grew by {change.growth} bytes, and its type by {by_type.growth} in all "
        f"({by_type.type}): it replaces blocks of other stacks"
        for change, by_type in found.replaced
    ]


def _what(change: Change, by: str) -> str:
    says = {"type": "Blocks of type {}", "size": "Blocks of {} bytes", "stack": "What {} allocated"}
    says.update(thread="What thread {} allocated", arena="The arena {}", state="What is {}")
    says.update(owner="What {} holds", holder="The blocks of {}")
    if by == "owner" and change.label == LEAKED_NAME:
        return "What is leaked"
    if by == "arena" and change.label.startswith("arena "):
        return f"The {change.label}"
    if change.shape:
        return f"Blocks of shape {change.label}"
    return says[by].format(change.label)


def fragmentation(memory: Sequence[Memory], heaps: Sequence[ProcessHeap]) -> list[Finding]:
    """Return a finding where the memory of the heap grew far more than the blocks in use, with advice; or nothing.

    An allocator that reserves its memory at once (mimalloc 3: a gigabyte) maps no more later. There the blocks that it
    made, free ones included, are what grew.
    """
    before, after = memory[0], memory[-1]
    mapped, used, free = after.mapped - before.mapped, after.in_use - before.in_use, after.free - before.free
    grown = mapped or used + free
    if grown < _MUCH or used * 2 > grown:
        return []
    unused = after.rest + after.top - before.rest - before.top
    rest = f", headers, tops and unused memory by {human_size(unused)}" if mapped else ""
    text = (
        f"The {'memory of the heap' if mapped else 'blocks of the heap, free ones included,'} grew by "
        f"{human_size(grown)}, the blocks in use by {human_size(used)}: "
        f"this is fragmentation or memory kept for later, not a leak. Free blocks grew by {human_size(free)}{rest}"
    )
    return [Finding("fragmentation", WASTE, LIKELY, text, _advice(heaps), weight=grown)]


def _advice(heaps: Sequence[ProcessHeap]) -> str:
    """Return how to get the memory back, for the allocator that grew most."""
    first, last = _owned(heaps[0]), _owned(heaps[-1])
    name = max(last, key=lambda name: (last[name] - first[name], last[name]), default="")
    return next((advice(one) for one in heaps[-1].heaps if one.allocator == name), "")


def _owned(heap: ProcessHeap) -> Counter[str]:
    """Return the bytes of address space of each allocator."""
    found: Counter[str] = Counter()
    for one in heap.heaps:
        found[one.allocator] += sum(end - start for start, end in one.owned)
    return found
