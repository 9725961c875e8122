"""Page directories: page tables that struct page does not mark as such.

The kernel marks a table of a process that has a lock of its own: the two lowest levels. Since 6.16 it also marks those
of the levels above, and its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drgnext.kernel.pages.owners.claims import Claims
from drgnext.kernel.pages.owners.structures import Structures

if TYPE_CHECKING:
    from drgn import Program

    from dmods._engine import PageTables

_KIND = "page_directory"
_X86_LARGE = 1 << 7  # _PAGE_PSE: the entry maps memory itself
_MARKED = 2  # the levels of a process that are marked


def find(read: Structures, claims: Claims, page_tables: PageTables) -> set[str]:
    """Claim the tables of the kernel and of the processes. Return what this kernel has in another form."""
    tables = _Tables(read.prog, claims, page_tables)
    tables.of_kernel()
    isolated = page_tables["arch"] == "x86_64" and _has_symbol(read.prog, "__pti_set_user_pgtbl")
    if isolated:  # the tables that are in place while a process runs have a few of their own
        tables.of_kernel(1 << page_tables["page_bits"])
    seen = set()
    for directory in _directories(read, claims):
        if directory not in seen:
            seen.add(directory)
            tables.of_process(directory, isolated)
        if claims.left <= 0:
            break
    return set()


def _directories(read: Structures, claims: Claims) -> Iterator[int]:
    """Yield the physical address of the topmost table of each process. Some come twice."""
    for task in read.processes():
        directory = read.word(read.word(task, "struct task_struct.mm"), "struct mm_struct.pgd")
        physical = claims.physical(directory) if directory else None
        if physical is not None:
            yield physical
    try:
        every = read.variable("pgd_list")  # x86 alone has a list of them (arch/x86/mm/pgtable.c)
    except LookupError:
        return
    for page in read.linked(every, claims.layout["lru"]):
        frame, rest = divmod(page - claims.layout["base"], claims.layout["size"])
        if frame >= 0 and not rest:
            yield frame << claims.layout["page_bits"]


class _Tables:
    """The page tables of one machine."""

    def __init__(self, prog: Program, claims: Claims, page_tables: PageTables) -> None:
        from drgn import FaultError

        self._faults = (FaultError, ValueError)
        self._prog = prog
        self._claims = claims
        self._given = page_tables
        self._x86 = page_tables["arch"] == "x86_64"
        self._bits = bits = page_tables["page_bits"]
        self._size = 1 << bits
        self._levels = -(-(page_tables["va_bits"] - bits) // (bits - 3))
        self._first_entries = 1 << page_tables["va_bits"] - bits - (self._levels - 1) * (bits - 3)
        self._seen: set[int] = set()

    def of_kernel(self, behind: int = 0) -> None:
        """Add all tables below the kernel's own directory, or below that ``behind`` it, in bytes."""
        half = self._first_entries // 2 if self._x86 else 0
        root = self._given["root"] + behind
        self._below(root, self._levels, range(half, self._first_entries), 1)

    def of_process(self, directory: int, isolated: bool) -> None:
        """Add a process's directory, by its physical address, and the tables below that are not marked."""
        frame = directory >> self._bits
        # With page table isolation two pages were allocated together, which are no compound page.
        together = isolated and not frame & 1 and self._claims.is_rest(frame + 1)
        self._claims.frame(_KIND, frame, 1 if together else 0)
        half = self._first_entries // 2 if self._x86 else self._first_entries
        self._below(directory, self._levels, range(half), _MARKED + 1)

    def _below(self, table: int, level: int, entries: Sequence[int], lowest: int) -> None:
        """Add the tables below a table, down to that level. A table of level 1 has the pages."""
        todo = [(table, level, entries)]
        while todo and self._claims.left > 0:
            table, level, entries = todo.pop()
            if level <= lowest:
                continue
            for below in self._entries(table, level, entries):
                if below not in self._seen:
                    self._seen.add(below)
                    if self._claims.frame(_KIND, below >> self._bits) and level - 1 > lowest:
                        todo.append((below, level - 1, range(self._size // 8)))

    def _entries(self, table: int, level: int, entries: Sequence[int]) -> Iterator[int]:
        """Yield the physical address of each table that a table's entries lead to."""
        if level < 2:
            return
        try:
            data = self._prog.read(table + entries[0] * 8, len(entries) * 8, True)
        except self._faults:
            return
        for entry in struct.unpack(f"<{len(entries)}Q", data):
            if self._x86:
                if entry & 1 and not entry & _X86_LARGE:
                    yield entry & ((1 << 52) - self._size) & ~self._given["clear"]
            elif entry & 3 == 3:
                high = (entry >> 12 & 0xF) << 48 if self._bits == 16 else 0
                yield entry & ((1 << 48) - self._size) | high


def _has_symbol(prog: Program, name: str) -> bool:
    """Return whether the kernel has a symbol of that name."""
    try:
        prog.symbol(name)
    except LookupError:
        return False
    return True
