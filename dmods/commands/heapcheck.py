"""Whether the heap is sound; if not, what is broken first, who may have done it, and how far it goes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dmods import heap as heaps
from dmods.command import Argument, Command
from dmods.content import look
from dmods.damage import Damage, damages, describe, hexdump
from dmods.glibc import integrity
from dmods.glibc.caches import cached_by_arena
from dmods.glibc.integrity import Contradiction
from dmods.glibc.runs import NO_ARENA
from dmods.heap import NO_HEAP, ProcessHeap
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

_SHOWN = 50  # damaged chunks and links in the tables; totals count all
_DUMPED = 5  # chunks whose bytes are shown

ARENAS = (
    Column("arena"),
    Column("address", "address"),
    Column("chunks", "count"),
    Column("free_chunks", "count", title="FREE"),
    Column("in_bins", "count", title="IN BINS"),
    Column("in_fastbins", "count", title="IN FASTBINS"),
    Column("cached", "count", title="CACHED"),
    Column("verdict"),
)
CHUNKS = (
    Column("chunk", "address", width=16),
    Column("arena"),
    Column("what"),
    Column("suspect", "address", title="LIKELY CULPRIT"),
    Column("suspect_size", "bytes", title="ITS SIZE"),
    Column("why"),
    Column("looks_like", title="LOOKS LIKE"),
    Column("resumed", "address", title="SOUND AGAIN AT"),
    Column("extent", "bytes", title="BYTES LOST"),
    Column("fault", hidden=True),
    Column("value", "address", hidden=True),
)
BYTES = (Column("address", "address", width=16), Column("bytes"), Column("text"))
LISTS = (Column("list"), Column("arena"), Column("at", "address"), Column("what"))


@dataclass
class Arena:
    """What was found of one arena (None: the mmapped blocks)."""

    name: str
    address: Optional[int]
    chunks: int = 0
    free: int = 0
    in_bins: int = 0
    in_fastbins: int = 0
    cached: int = 0
    bad_chunks: int = 0
    bad_lists: int = 0
    structure: int = 0

    @property
    def problems(self) -> int:
        return self.bad_chunks + self.bad_lists + self.structure

    @property
    def verdict(self) -> str:
        parts = [
            f"{count} {noun}{'' if count == 1 else 's'}"
            for count, noun in (
                (self.bad_chunks, "damaged chunk"),
                (self.bad_lists, "damaged link"),
                (self.structure, "contradiction"),
            )
            if count
        ]
        return ", ".join(parts) or "clean"


def run(target: Target, args: argparse.Namespace) -> Report:
    heap = heaps.of(target)
    report = Report(notes=list(heap.layout.notes) + heap.dump_notes())
    if not heap.arenas:
        report.notes.insert(0, NO_HEAP)
        return report
    structures, lists = list(integrity.structures(heap)), list(integrity.lists(heap))
    unseen = heap.bins().problem_count - len(heap.bins().problems)
    rows = _arenas(heap, structures, lists)
    report.tables.append(Table("arenas", ARENAS, [_arena_row(row) for row in rows]))
    chunks = list(damages(heap))
    if chunks:
        report.tables.append(
            Table("chunks", CHUNKS, [_chunk_row(heap, damage) for damage in chunks[:_SHOWN]], title="Damaged chunks")
        )
        report.tables.extend(_bytes(heap, damage) for damage in chunks[:_DUMPED])
    links = [*structures, *lists]
    if links:
        report.tables.append(
            Table(
                "lists",
                LISTS,
                [_link_row(heap, link) for link in links[:_SHOWN]],
                title="Contradictions in malloc's own records",
            )
        )
    _note_hidden(report, len(chunks), sum(row.bad_chunks for row in rows), len(links) + unseen)
    report.totals = {
        "problems": sum(row.problems for row in rows) + unseen,
        "damaged_chunks": sum(row.bad_chunks for row in rows),
        "damaged_links": len(lists) + unseen,
        "contradictions": len(structures),
        "chunks": sum(row.chunks for row in rows),
        "arenas": len(heap.arenas),
    }
    if args.fail_on_damage and report.totals["problems"]:
        report.status = 3
    return report


def _note_hidden(report: Report, described: int, bad: int, links: int) -> None:
    if bad > min(described, _SHOWN):
        report.notes.append(f"{bad - min(described, _SHOWN)} more damaged chunks are not shown")
    if links > _SHOWN:
        report.notes.append(f"{links - _SHOWN} more damaged links are not shown")


def _arenas(heap: ProcessHeap, structures: Sequence[Contradiction], lists: Sequence[Contradiction]) -> list[Arena]:
    """Each arena, then the mmapped blocks and what belongs to no arena."""
    rows = {number: Arena(heap.arena_name(number), arena.address) for number, arena in enumerate(heap.arenas)}
    rest = rows[NO_ARENA] = Arena("mmapped", None)
    for (_, _, _, number, _), report in zip(heap.index.runs(), heap.reports):
        row = rows[number]
        row.chunks += report["chunks"]
        row.free += report["free_chunks"]
        row.bad_chunks += report["anomaly_count"]
    cached = cached_by_arena(heap.words, heap.index, heap.caches)
    for number in range(len(heap.arenas)):
        row = rows[number]
        row.in_bins = heap.bins().count.get(number, 0)
        row.in_fastbins = heap.caches.fast_count.get(number, 0)
        row.cached = cached.get(number, (0, 0))[1]
    for found in lists:
        (rest if found.arena is None else rows[found.arena]).bad_lists += 1
    for found in structures:
        (rest if found.arena is None else rows[found.arena]).structure += 1
    if not rest.chunks and not rest.problems:
        del rows[NO_ARENA]
    elif not rest.chunks:
        rest.name = "all"
    return list(rows.values())


def _arena_row(row: Arena) -> tuple[Value, ...]:
    return row.name, row.address, row.chunks, row.free, row.in_bins, row.in_fastbins, row.cached, row.verdict


def _chunk_row(heap: ProcessHeap, damage: Damage) -> tuple[Value, ...]:
    suspect = damage.suspect
    return (
        damage.chunk,
        "mmapped" if damage.arena == NO_ARENA else heap.arena_name(damage.arena),
        describe(damage),
        suspect.address if suspect else None,
        suspect.size if suspect else None,
        damage.why or None,
        (look(heap, suspect).summary() if suspect else "") or None,
        damage.resumed,
        damage.extent,
        damage.fault,
        damage.value,
    )


def _bytes(heap: ProcessHeap, damage: Damage) -> Table:
    return Table(
        "bytes", BYTES, hexdump(heap, damage), style="plain", title=f"Around the header of chunk {damage.chunk:#x}"
    )


def _link_row(heap: ProcessHeap, link: Contradiction) -> tuple[Value, ...]:
    return link.where, None if link.arena is None else heap.arena_name(link.arena), link.address, link.text


COMMAND = Command(
    name="heapcheck",
    summary="whether the heap is sound: the first bad chunk, its likely culprit, and how far the damage goes",
    description=(
        "Walks every arena's chunks, follows its bins, fastbins and the threads' tcaches, and compares them with each\n"
        "other and with malloc's own records. A header is mostly damaged by the block before it, which was written\n"
        "beyond its end (LIKELY CULPRIT); or by the block itself, written before its start.\n"
        "Chunks make sense again at SOUND AGAIN AT."
    ),
    run=run,
    arguments=(Argument("--fail-on-damage", action="store_true", help="exit status 3 when something is damaged"),),
    examples=(
        ("heapcheck", "a verdict for each arena, and what is damaged"),
        ("heapcheck --fail-on-damage", "the same, for scripts: exit status 3 when the heap is damaged"),
    ),
)
