"""Check whether the heap is sound: find the first damaged chunk, its likely culprit, and the extent of the damage."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.allocators.vocabulary import Checked, Contradiction, Part
from dmods.base.named_tuple import NamedTuple
from dmods.command import Argument, Command
from dmods.commands._auditor import STOPPED, stopped_table
from dmods.commands._guards import GUARDS, SHOWN, guards_notes, guards_stacks, guards_table
from dmods.heap.blocks import arena_name
from dmods.heap.content import describe_content
from dmods.heap.damage import Damage, hexdump
from dmods.heap.guards import Verification, verify
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.no_heap import no_heap
from dmods.heap.verdict import NO_VERDICT, heap_verdict, partial_note
from dmods.records.callers import Callers
from dmods.report import Column, Report, Schema, Table, Value
from dmods.target import Target

_SHOWN = 50  # damaged chunks and links in the tables; totals count all
_DUMPED = 5  # chunks whose bytes are shown
_MOST_TEXT = 60  # characters of what a block looks like

ARENAS = Schema(
    "arenas",
    "a part of the heap: an arena, the tcaches, the blocks with mappings of their own, the guards",
    (
        Column("arena"),
        Column("address", "address", null="the part has no structure of its own"),
        Column("chunks", "count", null="the part has no such chunks"),
        Column("free_chunks", "count", title="FREE", null="the part has no such chunks"),
        Column("in_bins", "count", title="IN BINS", null="the part has no such chunks"),
        Column("in_fastbins", "count", title="IN FASTBINS", null="the part has no such chunks"),
        Column("cached", "count", title="CACHED", null="the part has no such chunks"),
        Column("verdict", about="clean, or the problems in words"),
    ),
    when="where there is a heap",
)
CHUNKS = Schema(
    "chunks",
    "a damaged chunk",
    (
        Column("chunk", "address", width=16),
        Column("arena"),
        Column("what"),
        Column(
            "suspect",
            "address",
            title="LIKELY CULPRIT",
            null="it is not known",
            about="the block that was likely written beyond its end",
        ),
        Column("suspect_size", "bytes", title="ITS SIZE", null="no block is suspected"),
        Column("why", null="no block is suspected", about="the evidence for that"),
        Column("looks_like", title="LOOKS LIKE", null="no block is suspected, or nothing is known of its content"),
        Column("resumed", "address", title="SOUND AGAIN AT", about="where chunks are valid again"),
        Column("extent", "bytes", about="of the damage"),
        Column("fault", hidden=True, about="a name for the kind of damage"),
        Column("value", "address", hidden=True, about="the value that stands there"),
    ),
    when="where chunks are damaged",
)
BYTES = Schema(
    "bytes",
    "16 bytes around the header of a damaged chunk; each of the first chunks has a table",
    (
        Column("address", "address", width=16),
        Column("bytes", about="hexadecimal digits"),
        Column("text", about="as ASCII"),
    ),
    when="where chunks are damaged",
)
LISTS = Schema(
    "lists",
    "a contradiction in the allocator's own records",
    (
        Column("list", about="the structure or list"),
        Column("arena", null="it belongs to no arena"),
        Column("at", "address", null="it has no place of its own"),
        Column("what"),
    ),
    when="where there are some",
)


class _Found(NamedTuple):
    """All that was found: what each heap says, a misuse that stopped the program, and the guards."""

    checked: Sequence[Checked]
    stopped: Optional[Table]
    guards: Optional[Verification]

    @property
    def chunks(self) -> list[Damage]:
        """Return the damaged chunks of all heaps."""
        return [damage for one in self.checked for damage in one.damages]

    @property
    def contradictions(self) -> list[Contradiction]:
        """Return the contradictions in structures and lists of all heaps."""
        return [each for one in self.checked for each in (*one.structures, *one.links)]

    @property
    def undescribed(self) -> int:
        """Return how many further links are wrong."""
        return sum(one.undescribed for one in self.checked)

    @property
    def parts(self) -> list[Part]:
        """Return the parts of the heap: the auditor, those of each heap, the guards."""
        parts = [Part("auditor", misuses=1)] if self.stopped is not None else []
        parts += [part for one in self.checked for part in one.parts]
        if self.guards is not None:
            parts.append(Part("guards", chunks=self.guards.live + self.guards.freed, bad_guards=self.guards.damaged))
        return parts

    @property
    def certain(self) -> bool:
        """Return whether there is damage that is certain, whatever else the dump lacks."""
        return self.stopped is not None or bool(self.guards is not None and self.guards.damaged)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the damage of the heap, part by part."""
    heap = find_heap(target)
    verdict = heap_verdict(heap)
    notes = [note for one in heap.heaps for note in one.notes]
    report = Report(notes=notes + heap.index.dump_notes() + partial_note(verdict), verdict=verdict)
    report.status = 0 if verdict.possible else NO_VERDICT
    guards = verify(target)
    if not heap.found and not heap.heaps and guards is None:
        report.notes.insert(0, no_heap(target))
        return report
    stopped = stopped_table(Callers(target), heap.records)
    found = _Found([one.check() for one in heap.heaps], stopped, guards)
    report.tables.extend(_tables(target, heap, found, args.verbose))
    report.notes.extend(guards_notes(guards) if guards is not None else ())
    report.totals = _totals(heap, found)
    _note_hidden(report, found)
    if args.fail_on_damage and report.totals["problems"] and (verdict.possible or found.certain):
        report.status = 3
    return report


def _tables(target: Target, heap: ProcessHeap, found: _Found, verbose: bool) -> Iterator[Table]:
    """Yield the parts, then what is damaged in them."""
    if found.stopped is not None:
        yield found.stopped
    yield ARENAS.table([_part_row(part) for part in found.parts])
    chunks, listed = found.chunks, found.contradictions
    if chunks:
        rows = [_chunk_row(heap, damage) for damage in chunks[:_SHOWN]]
        yield CHUNKS.table(rows, title="Damaged chunks")
        yield from (_bytes(heap, damage) for damage in chunks[:_DUMPED])
    if listed:
        rows = [_link_row(link) for link in listed[:_SHOWN]]
        yield LISTS.table(rows, title="Contradictions in malloc's own records")
    yield from _guards(target, found.guards, verbose)


def _totals(heap: ProcessHeap, found: _Found) -> dict[str, Value]:
    """Return the sums over all parts."""
    parts, guards = found.parts, found.guards
    return {
        "problems": sum(part.problems for part in parts) + found.undescribed,
        "damaged_chunks": sum(part.bad_chunks for part in parts),
        "damaged_links": sum(len(one.links) for one in found.checked) + found.undescribed,
        "contradictions": sum(len(one.structures) for one in found.checked),
        "misuses": int(found.stopped is not None),
        "guards_checked": guards.live + guards.freed if guards is not None else None,
        "overwritten_guards": guards.damaged if guards is not None else None,
        "chunks": sum(part.chunks or 0 for part in parts if part.name != "guards"),
        "arenas": sum(one.counts()[0] for one in heap.heaps),
    }


def _guards(target: Target, found: Optional[Verification], verbose: bool) -> Iterator[Table]:
    """Yield the blocks whose guards were overwritten, and with -v their stacks."""
    if found is None or not found.blocks:
        return
    callers, shown = Callers(target), found.blocks[:SHOWN]
    yield guards_table(callers, shown)
    if verbose:
        yield from guards_stacks(callers, shown)


def _note_hidden(report: Report, found: _Found) -> None:
    chunks = sum(part.bad_chunks for part in found.parts) - min(len(found.chunks), _SHOWN)
    links = max(0, len(found.contradictions) - _SHOWN) + found.undescribed
    if chunks:
        report.notes.append(f"{chunks} more damaged chunks are not shown")
    if links:
        report.notes.append(f"{links} more contradictions are not shown")


def _part_row(part: Part) -> tuple[Value, ...]:
    return (
        part.name,
        part.address,
        part.chunks,
        part.free,
        part.in_bins,
        part.in_fastbins,
        part.cached,
        part.verdict,
    )


def _chunk_row(heap: ProcessHeap, damage: Damage) -> tuple[Value, ...]:
    suspect = damage.suspect
    return (
        damage.chunk,
        arena_name(damage.arena),
        damage.what,
        suspect.address if suspect else None,
        suspect.size if suspect else None,
        damage.why or None,
        _shortened(describe_content(heap, suspect).summary()) if suspect else None,
        damage.resumed,
        damage.extent,
        damage.kind,
        damage.value,
    )


def _bytes(heap: ProcessHeap, damage: Damage) -> Table:
    return BYTES.table(hexdump(heap, damage), style="plain", title=f"Around the header of chunk {damage.chunk:#x}")


def _shortened(text: str) -> Optional[str]:
    return (text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "...") or None


def _link_row(link: Contradiction) -> tuple[Value, ...]:
    return link.where, None if link.arena is None else arena_name(link.arena), link.address, link.what


TOTALS = (
    Column("problems", "count", about="of all kinds"),
    Column("damaged_chunks", "count"),
    Column("damaged_links", "count"),
    Column("contradictions", "count"),
    Column("misuses", "count", about="for which the auditor stopped the program"),
    Column("guards_checked", "count", null="the program did not run with the auditor's guards"),
    Column("overwritten_guards", "count", null="the program did not run with the auditor's guards"),
    Column("chunks", "count"),
    Column("arenas", "count"),
)


COMMAND = Command(
    name="heapcheck",
    summary="whether the heap is sound: the first bad chunk, its likely culprit, and how far the damage goes",
    description=(
        "For glibc, heapcheck walks the chunks of every arena. It follows bins, fastbins and the tcaches of\n"
        "threads, and compares them with each other and with malloc's own records. Most headers are damaged by the\n"
        "block before them, which was written beyond its end (LIKELY CULPRIT). Some are damaged by their own\n"
        "block, written before its start. Chunks are valid again from SOUND AGAIN AT on.\n\n"
        "For jemalloc, heapcheck reads the radix tree, the extents in it, the bitmaps of slabs, and the tcaches of\n"
        "threads. There, CHUNKS counts extents.\n\n"
        "If the program ran with guards (`dmods run --audit audit,guards`), heapcheck compares the redzone behind\n"
        "every live block and the filling of freed blocks, as mdb's ::umem_verify does. A misuse for which the\n"
        "auditor stopped the program (an overrun, a block freed twice, a pointer that is no block) comes first.\n\n"
        "Exit status 4 means that no verdict is possible: dmods finds no heap that it can walk, or the dump lacks\n"
        "most of it."
    ),
    run=run,
    tables=(STOPPED, ARENAS, CHUNKS, BYTES, LISTS, GUARDS),
    totals=TOTALS,
    verdict=True,
    arguments=(
        Argument("--fail-on-damage", action="store_true", help="exit status 3 when something is damaged"),
        Argument("-v", "--verbose", action="store_true", help="the stacks of blocks with overwritten guards, too"),
    ),
    examples=(
        ("heapcheck", "a verdict for each arena, and what is damaged"),
        ("heapcheck --fail-on-damage", "the same, for scripts: exit status 3 when the heap is damaged"),
    ),
)
