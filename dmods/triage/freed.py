"""Freed memory that holds an address: the block that the program knew, as a record says, or what malloc made of it."""

from __future__ import annotations

from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.finding import Evidence
from dmods.heap.block import FREE, Block
from dmods.process.mappings import mapping_at
from dmods.records.model import Transaction
from dmods.triage.facts import ProcessFacts


class Freed(NamedTuple):
    """Freed memory that was found at an address: what it is, from where on, and where the allocator has it now.

    ``by`` and ``from_`` are who freed and who allocated the block, "" where no record says it. ``whole``: it is a block
    that the program had, and not what malloc made of several.
    """

    start: int
    offset: int
    what: str
    place: str
    by: str = ""
    from_: str = ""
    whole: bool = False

    @property
    def where(self) -> str:
        """Return where in the memory the address lies: "0x20 bytes into a freed block of 640 bytes"."""
        return f"{self.offset:#x} bytes into {self.what}" if self.offset else f"at the start of {self.what}"

    @property
    def known(self) -> int:
        """Return the address to ask `whatis` for: the block's, or that in it where the block is not known."""
        return self.start if self.whole else self.start + self.offset

    @property
    def hurt(self) -> str:
        """Return the memory as a phrase."""
        return f"the block at {self.start:#x}" if self.whole else f"the freed memory at {self.known:#x}"

    @property
    def history(self) -> str:
        """Return who had the block: ", freed by f, allocated by g"; "" where no record says it."""
        allocated = f", allocated by {self.from_}" if self.from_ else ""
        return f", freed by {self.by}{allocated}" if self.by else ""

    @property
    def blamed(self) -> str:
        """Return who freed the block, as a phrase of its own."""
        return f"{self.by}, which freed it" if self.by else ""

    @property
    def evidence(self) -> Evidence:
        """Return the start of the block, and all that is known of it."""
        return Evidence(self.start, f"{self.what}{self.place}{self.history}")


def freed_memory(facts: ProcessFacts, address: int) -> Optional[Freed]:
    """Return the freed memory that holds the address; None where it is in use, or nobody is known to have freed it.

    malloc merges free blocks. So the record of the free that covers the address decides, and not the free block.
    """
    heap = facts.heap
    block = heap.index.block_at(address)
    if block is not None and block.state != FREE:
        return None
    top = block is None and any(place.kind == "top" for place in facts.finder.at(address))
    if block is None and not top and mapping_at(facts.target, address) is not None:
        return None
    last = heap.records.last_freed(address) if heap.records else None
    place = _place(facts, block, top)
    if last is not None:
        return _recorded(facts, last, address, place)
    if block is not None:
        return _unrecorded(facts, block, address, place)
    tops = [row.top for one in heap.heaps for row in one.arena_rows() if row.top is not None and row.top <= address]
    if not top or not tops:
        return None
    return Freed(max(tops), address - max(tops), "free memory that malloc has merged into its top chunk", "")


def _recorded(facts: ProcessFacts, last: Transaction, address: int, place: str) -> Freed:
    before = last.alloc_stack
    return Freed(
        last.address,
        address - last.address,
        f"a freed block of {last.requested} bytes",
        place,
        facts.callers.caller(last.stack).text,
        facts.callers.caller(before).text if before.frames else "",
        whole=True,
    )


def _unrecorded(facts: ProcessFacts, block: Block, address: int, place: str) -> Freed:
    one = facts.heap.heap_of(block)
    merged = one.merged(block, address) if one is not None else False
    what = f"a freed block of {block.size} bytes"
    if merged is not False:
        what = (
            f"free memory that malloc {'has' if merged else 'may have'} merged from several blocks ({block.size} bytes)"
        )
    return Freed(block.address, address - block.address, what, place, whole=merged is False)


def _place(facts: ProcessFacts, block: Optional[Block], top: bool) -> str:
    if block is not None:
        return f", {facts.finder.holding(block)}"
    return ", now a part of the top chunk" if top else ", no longer mapped"
