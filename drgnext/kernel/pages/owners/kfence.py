"""The pages of KFENCE's pool. Their struct pages say that they are slabs, reserved, or just the kernel's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drgnext.kernel.pages.kfence import guarded_pool
from drgnext.kernel.pages.owners.claims import Claims
from drgnext.kernel.pages.owners.structures import Structures

if TYPE_CHECKING:
    from dmods._engine import PageLayout


def find(read: Structures, claims: Claims, layout: PageLayout) -> set[str]:
    """Claim the pool. Return what is not known of it."""
    from drgn.helpers.linux.mm import pfn_to_virt

    page = 1 << layout["page_bits"]
    pool = guarded_pool(read.prog, read.memory, page)
    if pool is None:
        return set()
    # Page tables do not lead to the first pages: they are protected.
    start = pool.start - pfn_to_virt(read.prog, 0).value_()
    claims.frames("kfence", (start & ((1 << 64) - 1)) // page, (pool.end - pool.start) // page)
    return set(pool.notes)
