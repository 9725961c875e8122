"""A profile out of the pointers: who holds the blocks that are in use. It needs no records.

A stack is a chain of holders. The leaf is the type or shape of the block. Then come the types of the blocks that alone
keep it alive (its dominators), and last the named root. Each byte in use has exactly one stack.
"""

from __future__ import annotations

from dmods.graph.owners.heap_owners import LEAKS, OWN_
from dmods.profile.code import Locations
from dmods.profile.from_records import only_allocator
from dmods.profile.holders import NAME, Holders
from dmods.profile.model import Label, Profile, Sample
from dmods.target import Target

_ANY_SIZE = (1 << 64) - 1


def from_graph(target: Target) -> Profile:
    """Return who holds the heap. Raises UserError where dmods cannot walk it."""
    found = Holders(target)
    locations = Locations(target)
    stacks: list[tuple[int, ...]] = []
    sets: list[int] = []
    for number, (parent, what) in enumerate(found.nodes):  # a holder comes before what it holds
        place = locations.named(found.name(number))
        stacks.append((place, *stacks[parent - 1]) if parent else (place,))
        sets.append(sets[parent - 1] if parent else what)
    profile = Profile(source=NAME)
    allocator = only_allocator(found.details.heap)
    for node, size, count, total in found.held:
        parent, what = found.nodes[node]
        line = found.line(sets[node])
        labels: list[Label] = [("bytes", size)] if size != _ANY_SIZE else []
        if allocator is not None:
            labels.append(("allocator", allocator))
        labels.append(("state", {LEAKS: "leaked", OWN_: "allocator"}.get(line.how, "held")))
        if parent:
            labels.append(("type", found.kind(what)))
        labels.append(("owner", line.name))
        profile.samples.append(Sample(stacks[node], (count, total), tuple(labels)))
    profile.samples.sort(key=lambda sample: -sample.values[1])
    profile.locations, profile.mappings = locations.all, locations.finished()
    profile.comments.append("stacks of holders, not of callers: the leaf is a block, the root holds it")
    profile.notes.extend(found.notes)
    return profile
