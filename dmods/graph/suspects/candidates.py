"""Which few things have most of the memory, as sentences for a ticket.

The rules, in this one place:

* What has leaked is one candidate, and what the allocator holds free another.
* A *single* candidate is a root that alone holds at least SHARE of the blocks in use and LEAST bytes; or, where several
  roots lead to it, a block that keeps as much alive; or all of these roots together. A few of them may be one thing,
  such as the head and the tail of a list. A server has many that lead to the same memory: the current context, the
  cache, the list of all. Then the kinds of the blocks, and texts in them, say what it is.
* The variables of one name that several threads have, each its own, are one candidate where no thread has most of it.
* A *group* is a type with as large a share, less what the single candidates hold of it; or the blocks of one size,
  where no type is known.
* At most MOST are named, the largest first.
* A candidate is a *suspect* if it is worth somebody's time: at least WORTH bytes, and SHARE_OF_PROCESS of the memory of
  the process. So a healthy small program has none, although one of its variables holds nearly all of its heap.
* What a variable holds is a suspect of the lowest confidence. One core cannot tell what accumulates from a cache that
  is full, or from data that the program needs. What has leaked, or is held free, is certain.
* A few large blocks are mostly buffers and tables, and the program asked for each at once: the dictionary of a
  compressor, the lines that sort(1) has read. They take more to be a suspect, FEW_WORTH.
* One block that is nearly all zeros is no suspect: a table that was reserved, and not filled.
* A type of the language itself (``str``, ``char[]``) is no suspect. It says nothing about who makes so many.
* The sentence names the block where the memory comes together: from the outermost block down, while one block keeps at
  least DOWN of what the block above it keeps (the accumulation point of Eclipse's Memory Analyzer).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.sizes import counted, human_size
from dmods.finding import Evidence
from dmods.graph.owners.heap_owners import ALONE, SHARED, Kept, Kind, Line, Owners, is_runtime
from dmods.graph.suspects.accumulating import DOWN, FEW, is_few, is_of_language
from dmods.graph.suspects.one_owner import BY, CONSIDERED, single
from dmods.graph.suspects.per_thread import ThreadLines, of_threads
from dmods.graph.suspects.process_share import ProcessMemory
from dmods.graph.suspects.sentence import KEEPS, client_in_words, inside, mostly, sizes_in_words
from dmods.graph.suspects.subject import counted_kind, holders, named_kinds, with_parts
from dmods.graph.suspects.suspect import Suspect, Words, suspect
from dmods.graph.types.block_types import type_of_leaks
from dmods.graph.types.typed_rows import leaks_by_type
from dmods.heap.leaks.groups import group_leaks
from dmods.records.callers import Callers

SHARE = 0.2
LEAST = 1 << 20
HELD_BACK = 0.5  # of the heap: so much free memory is named
MOST = 3
_TOGETHER = 4  # roots that may be one thing: more are what a whole program leads to


def find_candidates(owners: Owners, memory: ProcessMemory) -> list[Suspect]:
    """Return what has most of the memory, the largest first; [] for a well distributed or tiny heap."""
    limit = max(LEAST, int(SHARE * memory.in_use))
    singles = sorted(_singles(owners, memory, limit), key=lambda found: -found.weight)[:MOST]
    found = [*singles, *_leaked(owners, memory, limit), *_free(memory)]
    explained = sum(each.weight for each in singles)
    if len(singles) < MOST and owners.live - explained >= limit:
        found += _groups(owners, memory, limit, singles)
    return sorted(found, key=lambda each: -each.weight)[:MOST]


def _leaked(owners: Owners, memory: ProcessMemory, limit: int) -> Iterator[Suspect]:
    """Yield what has leaked, with the largest group of it."""
    if memory.leaked < limit:
        return
    heap = owners.heap
    leaks, callers = heap.leaks(), Callers(owners.target)
    count = leaks.direct_count + leaks.indirect_count
    groups = group_leaks(heap, callers) if heap.records else leaks_by_type(heap, callers)
    first = groups[0]
    caller = f", allocated by {first.caller.text}" if first.record is not None else ""
    # The block says nothing of its type, but live objects of that type look like it.
    kind = f" ({'probably ' if first.guessed else ''}{first.kind})" if first.kind else ""
    most = f"{counted(first.count, 'block')} of {first.size:,} bytes{kind}{caller}"
    keep = " with what they keep alive" if first.kept_bytes else ""
    example = type_of_leaks(heap, first) if not first.kind else ""
    share, part = memory.leaked / memory.in_use, first.lost / memory.leaked
    of_process = memory.share(memory.leaked, memory.leaked - memory.leaked_touched)
    sentence = (
        f"{share:.0%} of the heap in use has leaked ({sizes_in_words(memory.leaked, of_process)}): nothing points to "
        f"{count:,} blocks any more. {part:.0%} of it is {most}{keep}; one{f' ({example})' if example else ''} is at "
        f"{first.first:#x}"
    )
    next_ = ["findleaks -d --top 3", f"whatis {first.first:#x}"]
    shares, evidence = (share, of_process), [Evidence(first.first, most)]
    yield suspect("leaked", sentence, memory.leaked, next_, count=count, shares=shares, evidence=evidence)


def _free(memory: ProcessMemory) -> Iterator[Suspect]:
    """Yield what the allocator holds free, if that is most of the heap."""
    if memory.free < max(LEAST, HELD_BACK * memory.heap):
        return
    share, of_process = memory.free / memory.heap, memory.share(memory.free, memory.free - memory.free_touched)
    sentence = (
        f"{share:.0%} of the heap's {human_size(memory.heap)} is free memory that the allocator holds back "
        f"({sizes_in_words(memory.free, of_process)}); the program uses {human_size(memory.in_use)}"
    )
    next_ = ["malloc_stats", "heapsizes --sort free --top 5"]
    yield suspect("free", sentence, memory.free, next_, shares=(share, of_process))


def _singles(owners: Owners, memory: ProcessMemory, limit: int) -> Iterator[Suspect]:
    threads = of_threads(owners, owners.lines, limit)
    yield from (_threads(owners, memory, each) for each in threads)
    named = {line.set for each in threads for line in each.lines}
    for line in owners.lines:
        if line.set not in named and is_held(line) and line.bytes >= limit:
            yield from of_line(owners, memory, line, limit)


def is_held(line: Line) -> bool:
    """Return whether roots hold what the line counts."""
    return line.how in (ALONE, SHARED) and line.set is not None


def of_line(owners: Owners, memory: ProcessMemory, line: Line, limit: int) -> Iterator[Suspect]:
    """Yield the suspects of a line that roots hold: blocks that keep `limit` bytes of it alive, or all of it."""
    top = owners.largest(("set", line.set or 0), CONSIDERED)
    if line.how == ALONE:
        heavy = top[0] if top and top[0].bytes >= DOWN * line.bytes else None
        yield single(owners, memory, line, Kept(0, 0, line.count or 0, line.bytes), heavy)
        return
    below = [kept for kept in top if kept.bytes >= limit]
    if 2 * sum(kept.bytes for kept in below) > line.bytes:
        yield from (single(owners, memory, line, kept, kept) for kept in below)
    elif 0 < len(line.roots) <= _TOGETHER and not any(map(is_runtime, line.roots)):
        yield single(owners, memory, line, Kept(0, 0, line.count or 0, line.bytes), None)
    else:
        yield _shared(owners, memory, line)


def _shared(owners: Owners, memory: ProcessMemory, line: Line) -> Suspect:
    """Return the suspect: what many roots lead to. The kinds of its blocks and their texts say what it is."""
    size, share, scope = line.bytes, line.bytes / memory.in_use, ("set", line.set or 0)
    of_process = memory.share(size, memory.untouched_in(owners, scope))
    kinds = with_parts(owners.kinds(scope, BY))
    sentence = f"{holders(owners, line)} share {share:.0%} of the heap in use ({sizes_in_words(size, of_process)})"
    said = mostly(kinds, line.count or 0, size)
    kind = kinds[0] if kinds else None
    next_ = [*([f"pathto {kind.example:#x} --all"] if kind is not None else []), "owners"]
    return suspect(
        "held",
        sentence,
        size,
        next_,
        count=line.count,
        shares=(share, of_process),
        evidence=[Evidence(kind.example, "one of the blocks")] if kind is not None else [],
        root=holders(owners, line),
        few=is_few(owners, scope, size),
        scope=scope,
        behind=[Words(said), inside(owners, scope, kinds), *client_in_words(owners, scope)],
    )


def _threads(owners: Owners, memory: ProcessMemory, found: ThreadLines) -> Suspect:
    """Return the suspect: a variable that several threads have. What the first of them holds tells what it is."""
    size, share = found.bytes, found.bytes / memory.in_use
    first = found.lines[0]
    kinds = with_parts(owners.kinds(("set", first.set or 0), BY))
    scope = ("set", first.set or 0)
    mostly = f": {named_kinds(kinds)}" if kinds else ""
    of_process = memory.share(
        size, sum(memory.untouched_in(owners, ("set", line.set)) for line in found.lines if line.set is not None)
    )
    name = f"`{found.name}` of {found.threads} threads"
    sentence = (
        f"{name} keeps {share:.0%} of the heap in use ({sizes_in_words(size, of_process)}) alive. "
        f"Thread {first.roots[0].tid} has {human_size(first.bytes)} of it{mostly}"
    )
    top = owners.largest(("set", first.set or 0), 1)
    next_ = [*(f"retained {each.address:#x}" for each in top), "owners"]
    evidence = [Evidence(each.address, KEEPS) for each in top]
    shares = share, of_process
    few = is_few(owners, ("set", first.set or 0), first.bytes)
    root = f"`{found.name}`"
    return suspect(
        "held",
        sentence,
        size,
        next_,
        count=found.blocks,
        shares=shares,
        evidence=evidence,
        root=root,
        few=few,
        behind=[inside(owners, scope, kinds)],
    )


def _groups(owners: Owners, memory: ProcessMemory, limit: int, singles: list[Suspect]) -> Iterator[Suspect]:
    """Yield the types that take as much, and the sizes without a type, less what the single suspects hold of them."""
    explained: dict[str, int] = {}
    for found in singles:
        if found.scope is None:
            return  # what the threads hold has no one place, and has been named
        for kind in owners.kinds(found.scope, BY):
            explained[kind.name] = explained.get(kind.name, 0) + kind.bytes
    for kind in owners.kinds(("live", 0), BY):
        left = kind.bytes - explained.get(kind.name, 0)
        if left < limit or kind.count < 2 or (kind.is_type and is_of_language(kind.name)):
            continue
        share, of_process = left / memory.in_use, memory.share(left)
        sentence = (
            f"{counted_kind(kind)} take {share:.0%} of the heap in use ({sizes_in_words(left, of_process)}), held by "
            f"no single block; one is at {kind.example:#x}"
        )
        yield suspect(
            "type" if kind.is_type else "size",
            sentence,
            left,
            [f"pathto {kind.example:#x} --all", f"owners --by {'type' if kind.is_type else 'size'}"],
            count=kind.count,
            shares=(share, of_process),
            evidence=[Evidence(kind.example, f"one {kind.name if kind.is_type else 'of them'}")],
            few=kind.count <= FEW,
            behind=[inside(owners, ("live", 0), [kind])],
        )


def most_of_language(owners: Owners, memory: ProcessMemory) -> Optional[Kind]:
    """Return the type of the language itself that has SHARE of the heap in use, and that nobody in particular holds."""
    limit = max(LEAST, int(SHARE * memory.in_use))
    kinds = with_parts(owners.kinds(("live", 0), BY))
    return next((kind for kind in kinds if kind.bytes >= limit and is_of_language(kind.name)), None)


def largest_holder(owners: Owners, memory: ProcessMemory) -> Optional[Suspect]:
    """Return what has most of the memory, however little it is; None for a heap of which no root holds anything."""
    found = find_candidates(owners, memory)
    if found:
        return found[0]
    line = next((line for line in owners.lines if is_held(line)), None)
    return next(of_line(owners, memory, line, line.bytes), None) if line is not None and memory.in_use else None
