"""Mappings that nothing points to any more, and that are no allocator's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dmods.base.ranges import Ranges
from dmods.base.sizes import human_size
from dmods.finding import LIKELY, POSSIBLE, SERIOUS, CannotCheck, Check, Evidence, Finding, Measured, Said
from dmods.heap.loose_mappings import Loose
from dmods.heap.lost_mappings import find_lost_mappings, hidden_heaps
from dmods.heap.mapping_content import content_of
from dmods.records.mapped import HOW_TO_RECORD, makers
from dmods.target import AddressRange
from dmods.triage.facts import ProcessFacts

_LEAST = 256 << 10  # bytes
_MANY = 16  # mappings
_SHOWN = 3


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield one finding where enough was lost. Nothing is certain: a program may keep an address in another form."""
    if hidden_heaps(facts.heap):  # a runtime has mappings of its own, and nothing is wrong with it
        yield Measured("mappings may belong to a heap that is not walked")
        return
    found = find_lost_mappings(facts.target)
    if not found.verdict.possible:
        raise CannotCheck(found.verdict.reason)
    lost = sorted(found.lost, key=lambda each: (-each.size, each.start))
    yield Measured(f"{human_size(found.bytes)} of {_mappings(len(lost))} lost")
    if not lost or (found.bytes < _LEAST and len(lost) < _MANY):
        return
    if found.verdict.reason:
        raise CannotCheck(f"nothing is known to point to {_mappings(len(lost))}, but {found.verdict.reason}")
    makes = _made_by(facts, lost)
    by = (
        f"; {'all' if makes[0][1] == len(lost) else f'{makes[0][1]:,}'} of them are from {makes[0][0]}" if makes else ""
    )
    size, alike = Counter(each.size for each in lost).most_common(1)[0]
    each_has = f" of {human_size(size)}" if alike == len(lost) > 1 else ""
    yield Finding(
        "mapping-leak",
        SERIOUS,
        LIKELY,
        f"{human_size(found.bytes)} of mappings leaked: nothing points to "
        f"{_mappings(len(lost))}{_of_files(lost)}{each_has} any more{by}",
        f"unmap what {makes[0][0]} maps" if makes else f"find out who maps them: {HOW_TO_RECORD}",
        tuple(_evidence(facts, each) for each in lost[:_SHOWN]),
        ("maps --leaked",),
        weight=found.bytes,
        subject=makes[0][0] if makes else f"mappings of {size} bytes",
        remedy_confidence=LIKELY if makes else POSSIBLE,
        alternative="the program keeps their addresses in another form (page numbers, XORed, in a file), or "
        "has given them to the kernel or to a device",
    )


def _mappings(count: int) -> str:
    return "1 mapping" if count == 1 else f"{count:,} mappings"


def _of_files(lost: Sequence[Loose]) -> str:
    count = sum(each.path is not None for each in lost)
    return " of files" if count == len(lost) else f" ({count:,} of files)" if count else ""


def _made_by(facts: ProcessFacts, lost: Sequence[Loose]) -> list[tuple[str, int]]:
    """Return who made the mappings, and how many each. [] where nobody recorded it."""
    found: Counter[str] = Counter()
    for each in lost:
        made = makers(facts.target, AddressRange(each.start, each.end, "rw-"))
        if made:
            found[facts.callers.caller(made[0].stack).text] += 1
    return found.most_common()


def _evidence(facts: ProcessFacts, each: Loose) -> Evidence:
    if each.path is not None:
        return Evidence(each.start, f"a mapping of {human_size(each.size)} of {facts.content(each.path, 'path')}")
    whole = AddressRange(each.start, each.end, "rw-", dumped=each.dumped)
    mapped = Ranges((m.start, m.end) for m in facts.target.mappings() if m.flags != "---")
    content = content_of(facts.target, whole, mapped)
    return Evidence(
        each.start, f"a mapping of {human_size(each.size)}: {content.public if facts.private else content.phrase}"
    )


CHECK = Check(
    "mappings",
    "nothing points to mappings of 256 KB, or to 16 mappings, and they are no allocator's",
    run,
    seconds=60,
)
