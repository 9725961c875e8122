"""Say who holds the most memory of a process: one line, also where nothing is wrong.

The owners of a huge heap take longer than all checks together. There the blocks of the size that has most are named,
and a path to one of them. So triage takes at most twice as long as findleaks, and a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Optional

from dmods.base.ranges import Ranges
from dmods.base.sizes import counted, human_size
from dmods.graph.owners.heap_owners import find_owners
from dmods.graph.owners.root_paths import path_to
from dmods.graph.roots.named_roots import named_roots
from dmods.graph.roots.plain_names import RootNames
from dmods.graph.suspects.accumulating import FEW
from dmods.graph.suspects.candidates import SHARE, largest_holder
from dmods.graph.suspects.process_share import process_memory
from dmods.graph.suspects.sample_texts import places, runs_in, sample_of
from dmods.graph.suspects.sentence import pool_in_words
from dmods.graph.suspects.subject import named_place
from dmods.graph.suspects.suspect import FEW_WORTH, WORTH
from dmods.graph.types.block_types import common_type
from dmods.heap.block import LIVE, Block
from dmods.heap.heap import ProcessHeap
from dmods.heap.mapping_content import Content, content_of
from dmods.heap.mapping_kinds import classify_mappings
from dmods.heap.verdict import leak_verdict
from dmods.triage.answer import Holder
from dmods.triage.facts import MOST_TYPED, ProcessFacts

MOST_BLOCKS = 2_000_000  # in use: a heap of more takes owners longer than findleaks and a second
_MAPPINGS = 8  # the largest, whose content is looked at
_PLACES, _BATCH, _READ = 16, 64, 8  # of the heap where blocks of a size are looked for, and how many are read
_NEXT = ("suspects",)
_SIZES = ("owners --by size",)
_OUTSIDE = ("maps -v --contents",)


def process_holder(facts: ProcessFacts) -> Optional[Holder]:
    """Return what holds the most memory of the process; None where it has hardly any."""
    heap = facts.heap
    verdict = leak_verdict(heap)
    rows = heap.marks.engine.sizes() if heap.found else []
    blocks = sum(row[1] + row[3] for row in rows)
    if not verdict.possible:
        inside = _of_size(facts, rows, False)
    elif blocks > MOST_BLOCKS:
        inside = _of_size(facts, rows, True)
    else:
        inside = _owner(facts, blocks <= MOST_TYPED)
    outside = _outside(facts)
    if inside is None or outside is None:
        return inside or outside
    return outside if outside.bytes > max(inside.bytes, heap.bytes) else inside


def _owner(facts: ProcessFacts, typed: bool) -> Optional[Holder]:
    """Return what `suspects` names first, or the largest owner."""
    owners = find_owners(facts.target)
    with nullcontext() if typed else owners.without_debug_information():
        found = largest_holder(owners, process_memory(owners))
    if found is None:
        return None
    what = found.public if facts.private else found.what
    shares = found.share, found.share_of_process
    return Holder(what, found.kind, found.weight, _NEXT, *shares, found.address, found.is_worth())


def _of_size(facts: ProcessFacts, rows: Sequence[tuple[int, int, int, int, int]], judged: bool) -> Optional[Holder]:
    """Return the blocks of the size that has most of the heap in use. Only a heap that can be judged has owners."""
    heap = facts.heap
    used = sum(row[0] * (row[1] + row[3]) for row in rows)
    if not used:
        return None
    size, live, _free, leaked, *_rest = max(rows, key=lambda row: row[0] * (row[1] + row[3]))
    count, share = live + leaked, size * (live + leaked) / used
    blocks = _blocks_of(heap, size)
    written = common_type(heap, blocks, spread=False) if blocks else ""
    what = f"{counted(count, 'block')} of {size:,} bytes{f' ({written})' if written else ''}"
    pool = pool_in_words(heap, blocks, count)
    inside = f"{pool.public}{'' if facts.private else pool.texts}" if pool is not None else ""
    what += "" if facts.private or pool is not None else sample_of(heap, blocks)
    much = f"{'take' if count > 1 else 'takes'} {share:.0%} of the heap in use ({human_size(used)})"
    held = _way(facts, blocks) if judged else "; the dump does not tell who holds them"
    is_suspect = judged and size * count >= (WORTH if count > FEW else FEW_WORTH) and share >= SHARE
    return Holder(
        f"{what} {much}{held}{inside}",
        "size",
        size * count,
        _NEXT if judged else _SIZES,
        share,
        address=blocks[0].address if blocks else None,
        is_suspect=is_suspect,
    )


def _way(facts: ProcessFacts, blocks: Sequence[Block]) -> str:
    """Return the root of a path to one of the blocks, in words."""
    roots = named_roots(facts.target)
    path = path_to(roots, blocks[len(blocks) // 2].address, most=1, looks=False) if blocks else None
    if path is None or path.root is None:
        return ""
    return f"; one of them hangs on {named_place(RootNames(roots), path.root, path.steps[0].holder)}"


def _blocks_of(heap: ProcessHeap, size: int) -> list[Block]:
    """Return blocks of a size from different places of the heap."""
    found: dict[int, Block] = {}
    for start in places(list(heap.owned), _PLACES):
        rows = heap.index.engine.blocks([LIVE], start, _BATCH)
        row = next((row for row in rows if row.size == size), None)
        block = heap.index.block_at(row.address) if row is not None else None
        found.update({block.address: block} if block is not None else {})
    blocks = list(found.values())
    return blocks[:: max(1, len(blocks) // _READ)][:_READ]


def _outside(facts: ProcessFacts) -> Optional[Holder]:
    """Return the mapping outside the heap whose pages hold most, if any is known to hold something."""
    target = facts.target
    parts = [each for each, kind in classify_mappings(target) if kind in ("anon", "shared") and "w" in each.flags]
    largest = sorted(parts, key=lambda each: (-each.size, each.start))[:_MAPPINGS]
    mapped = Ranges((each.start, each.end) for each in target.mappings() if each.flags != "---")
    found = max((content_of(target, each, mapped) for each in largest), key=_held, default=None)
    if found is None or not _held(found):
        return None
    mapping, what = found.mapping, found.public if facts.private else found.phrase
    others = len(parts) - 1
    rest = human_size(sum(each.size for each in parts) - mapping.size)
    beside = f"; {counted(others, 'other mapping')} {'have' if others > 1 else 'has'} {rest}" if others else ""
    where = f"{mapping.path or 'anonymous memory'} at {mapping.start:#x}"
    size = human_size(mapping.size)
    texts, others_texts = "", ""
    if not facts.private:
        texts = runs_in(facts.heap, [(mapping.start, mapping.end)])
        rest_of = [(each.start, each.end) for each in parts if each.start != mapping.start]
        others_texts = runs_in(facts.heap, rest_of) if not texts else ""
    inside = f"holds {what}{texts}{beside}{others_texts}"
    sentence = f"a mapping of {size} without blocks that dmods walks ({where}) {inside}"
    return Holder(sentence, "mapping", _held(found), _OUTSIDE, address=mapping.start)


def _held(content: Content) -> int:
    """Return how many bytes of a mapping hold anything."""
    return int(content.mapping.size * (content.used or 0))
