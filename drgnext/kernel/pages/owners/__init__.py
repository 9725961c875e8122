"""Pages whose struct page does not tell what they are, but whose owner does.

Owners are found by the files that processes have open, and by lists of the kernel's own. A ring whose file was closed
after it was mapped, and the queue of a socket that no process has open, are not found. All structures are read word by
word, at offsets from debug information. Every list is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drgnext.kernel.pages.owners import block, bpf, files, kfence, percpu, tables, traces
from drgnext.kernel.pages.owners.claims import MOST_IN_ALL, Claims, Owned
from drgnext.kernel.pages.owners.structures import Structures

if TYPE_CHECKING:
    from drgn import Program

    from dmods._engine import Memmap, PageLayout, PageTables


def owned_pages(prog: Program, memmap: Memmap, layout: PageLayout, page_tables: PageTables, notes: list[str]) -> Owned:
    """Return what was found.

    What this kernel does not have is left out. A structure that the dump lacks ends its list. ``notes`` say what was
    not found because debug information is missing.
    """
    from drgn import FaultError

    read = Structures(prog, memmap)
    claims = Claims(read, memmap, layout)
    finders: tuple[tuple[str, Callable[[], set[str]]], ...] = (
        ("pages of KFENCE's pool", lambda: kfence.find(read, claims, layout)),
        ("rings, pipes or sockets", lambda: files.find(read, claims)),
        ("buffers of ftrace", lambda: traces.find(read, claims)),
        ("ring buffers of BPF", lambda: bpf.find(read, claims)),
        ("requests of block devices", lambda: block.find(read, claims, layout)),
        ("per-CPU memory or pools for DMA", lambda: percpu.find(read, claims)),
        ("page directories", lambda: tables.find(read, claims, page_tables)),
    )
    for what, find in finders:
        try:
            missing = find()
        except (AttributeError, FaultError, LookupError) as error:
            missing = {str(error)}
        notes += [f"some {what} may count as other kernel pages: {why}" for why in sorted(missing)]
    if claims.left <= 0:
        notes.append(
            f"some pages with owners may count as other kernel pages: they have more than {MOST_IN_ALL} pages, or are "
            "damaged"
        )
    return claims.found()
