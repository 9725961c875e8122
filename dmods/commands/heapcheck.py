"""Whether the heap is sound; if not, what is broken first, who may have done it, and how far it goes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from dmods import heap as heaps
from dmods.command import Argument, Command
from dmods.content import look
from dmods.damage import Damage, damages, hexdump
from dmods.glibc import integrity
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
