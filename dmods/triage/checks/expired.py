"""Destroyed objects of shared_ptr whose memory weak_ptrs keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dmods.base.sizes import human_size
from dmods.finding import CERTAIN, LIKELY, WASTE, Check, Evidence, Finding, Measured, Said
from dmods.graph.owners.expired import Expired, find_expired, holders_of
from dmods.heap.ledger import IN_USE, find_ledger
from dmods.triage.facts import ProcessFacts

_LARGE = 64 << 20  # bytes
_LEAST = 64 << 10  # bytes, with a tenth of the heap in use
_SHARE = 10
_SHOWN = 3


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield one finding where the memory is much. A few expired weak_ptrs are normal."""
    found = find_expired(facts.target)
    count, size = sum(each.objects for each in found), sum(each.bytes for each in found)
    used = find_ledger(facts.target).use(IN_USE).bytes
    yield Measured(f"{human_size(size)} of {human_size(used)} in {count:,} control blocks of destroyed objects")
    if size < _LARGE and (size < _LEAST or size * _SHARE < used):
        return
    first = found[0]
    least = "" if all(each.complete for each in found) else "at least "
    names = Counter(holders_of(facts.target, found[:_SHOWN])).most_common(1)
    holder = f"; {names[0][0]} leads to these weak_ptrs" if names else ""
    others = f" and {len(found) - 1} other types" if len(found) > 1 else ""
    yield Finding(
        "expired-objects",
        WASTE,
        CERTAIN,
        f"{least}{count:,} objects of shared_ptr are destroyed, and weak_ptrs keep {human_size(size)} of memory "
        f"({size / max(size, used):.0%} of the heap in use): {first.objects:,} {first.name}{others}{holder}",
        _remedy(first),
        tuple(_evidence(each) for each in found[:_SHOWN]),
        (f"whatis {first.examples[0]:#x}", "types"),
        weight=size,
        subject=first.name,
        remedy_confidence=LIKELY,
        alternative="the program is about to drop the weak_ptrs: it sweeps its table from time to time",
    )


def _remedy(first: Expired) -> str:
    instead = "; shared_ptr<T>(new T) frees an object's memory with its last owner" if first.inplace else ""
    return f"remove weak_ptrs of destroyed objects from their table{instead}"


def _evidence(each: Expired) -> Evidence:
    what = "the object and its control block" if each.inplace else "a control block, whose object is gone"
    return Evidence(each.examples[0], f"{what}: {each.name}, one of {each.objects:,}; its use count is 0")


CHECK = Check(
    "expired",
    "weak_ptrs keep 64 MB of destroyed objects, or 64 KB and a tenth of the heap in use",
    run,
    needs=("leaks",),
    seconds=60,
)
