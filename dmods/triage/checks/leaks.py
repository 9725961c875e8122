"""Blocks that nothing points to any more, by what was lost."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.sizes import human_size
from dmods.finding import CERTAIN, LIKELY, POSSIBLE, SERIOUS, Check, Evidence, Finding, Measured, Parties, Said
from dmods.graph.types.block_types import type_of_leaks
from dmods.heap.leaks.groups import LeakGroup, group_leaks
from dmods.heap.leaks.odd_pointers import oddly_held
from dmods.heap.ledger import IN_USE, LEAKED, find_ledger
from dmods.heap.signal_stacks import signal_stack_groups
from dmods.triage.facts import ProcessFacts

_LARGE = 64 << 20  # bytes: so much is a finding, whatever the size of the heap
_MEDIUM = 1 << 20  # with a hundredth of the heap
_SMALL = 64 << 10  # with a twentieth
_LEAST = 4 << 10  # with a tenth, where many blocks of one kind leak
_MANY = 50
_SHOWN = 3  # groups


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield one finding where enough was lost. Real programs lose a few blocks and are healthy."""
    heap = facts.heap
    leaks = heap.leaks()
    lost = leaks.direct_bytes + leaks.indirect_bytes
    lost -= sum(group.count * group.size for group in signal_stack_groups(facts.target, leaks))
    ledger = find_ledger(facts.target)
    used = ledger.use(IN_USE).bytes + ledger.use(LEAKED).bytes
    yield Measured(f"{human_size(lost)} of {human_size(used)} leaked")
    if lost < _LEAST:
        return
    groups = group_leaks(heap, facts.callers)
    many = any(group.count >= _MANY and 10 * group.lost >= used for group in groups)
    share = lost / used if used else 1.0  # damaged headers name blocks outside of all mappings
    if not (lost >= _LARGE or (lost >= _MEDIUM and share >= 0.01) or (lost >= _SMALL and share >= 0.05) or many):
        return
    first = groups[0]
    by = f", {first.lost / lost:.0%} of them from {first.caller.text}" if first.record is not None else ""
    kinds = [type_of_leaks(heap, group, facts.spreads_types) for group in groups[:_SHOWN]]
    if first.record is None and first.count > 1:
        by = f"; {first.count:,} of them have {first.size:,} bytes{f' ({kinds[0]})' if kinds[0] else ''}"
    odd = oddly_held(facts.target)
    yield Finding(
        "leak",
        SERIOUS,
        POSSIBLE if 2 * odd >= leaks.direct_count + leaks.indirect_count else CERTAIN,
        f"{human_size(lost)} ({share:.0%} of the heap) leaked: nothing points to "
        f"{leaks.direct_count + leaks.indirect_count:,} blocks any more{by}",
        _remedy(first, bool(heap.records)),
        tuple(map(_evidence, groups, kinds)),
        ("findleaks -d --top 3", f"whatis {first.first:#x}"),
        weight=lost,
        subject=first.caller.text if first.record is not None else f"blocks of {first.size} bytes",
        remedy_confidence=LIKELY if first.record is not None else POSSIBLE,
        alternative=f"{odd:,} of the blocks are in use: words at odd places or with a tag lead to them, as in packed "
        "structures and lists without locks (findleaks has a note)"
        if odd
        else "the program keeps these pointers in another form (XORed, compressed, in a file); evidence against this: "
        "findleaks knows the usual forms",
        parties=Parties(
            hurt=f"{_blocks(first)}{f', allocated by {first.caller.text}' if first.record is not None else ''}",
            holds="nobody",
        ),
    )


def _blocks(group: LeakGroup) -> str:
    return f"{group.count:,} block{'' if group.count == 1 else 's'} of {group.size:,} bytes"


def _remedy(group: LeakGroup, recorded: bool) -> str:
    """Return what to do about a leak: the caller is known, or not recorded, or nothing was recorded."""
    if group.record is not None:
        return f"free what {group.caller.text} allocates"
    if recorded:
        return "no record says who allocated these blocks: `dmods run -- PROG` from the start of the program does"
    return "`dmods run -- PROG` records who allocates; then findleaks names the callers"


def _evidence(group: LeakGroup, kind: str) -> Evidence:
    keeps = f", which keep {human_size(group.kept_bytes)} more alive" if group.kept_bytes else ""
    caller = f" from {group.caller.text}" if group.record is not None else ""
    blocks = "a block" if group.count == 1 else f"the first of {group.count:,} blocks"
    return Evidence(group.first, f"{blocks} of {group.size:,} bytes{f' ({kind})' if kind else ''}{caller}{keeps}")


CHECK = Check(
    "leaks",
    "64 MB leaked; or 1 MB and 1 % of the heap; or 64 KB and 5 %; or 10 % in 50 blocks of one kind",
    run,
    needs=("leaks",),
    seconds=30,
)
