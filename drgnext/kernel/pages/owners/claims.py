"""The pages that owners have: page frames and areas of virtual memory, each with its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.pages.owners.structures import Structures

if TYPE_CHECKING:
    from drgn import Program

    from dmods._engine import Memmap, PageLayout

MOST_PAGES = 1 << 20  # of one owner
MOST_IN_ALL = 1 << 22  # pages that are looked at
_MOST_ORDER = 13  # MAX_ORDER is 10 with pages of 4 KB, and 13 with pages of 64 KB

Claim = tuple[str, int, int]


class Owned(NamedTuple):
    """The pages found: (kind, first page frame, number of pages), and (kind, start, end) of virtual memory."""

    pages: list[Claim]
    areas: list[Claim]


class Claims:
    """Pages by their owners. The number of pages that are looked at is bounded."""

    def __init__(self, structures: Structures, memmap: Memmap, layout: PageLayout) -> None:
        self.left = MOST_IN_ALL
        self.areas: list[Claim] = []
        self._pages: dict[int, tuple[str, int]] = {}  # first page frame: kind, number of pages
        self._read = structures
        self.layout = layout
        self._translate = memmap.translate
        self._direct = _map_of_all_memory(structures.prog)
        self._distance: Optional[int] = None

    def found(self) -> Owned:
        """Return all claims."""
        return Owned([(kind, first, count) for first, (kind, count) in self._pages.items()], self.areas)

    def each_address(self, kind: str, at: int, count: int) -> None:
        """Add the pages that an array of addresses leads to, up to the first that is not mapped."""
        for number in range(min(max(count, 0), MOST_PAGES) if at else 0):
            address = self._read.memory.word(at + 8 * number)
            if address is None or self.left <= 0 or not self.address(kind, address):
                return

    def each_page(self, kind: str, at: int, count: int) -> None:
        """Add the pages of an array of pointers to struct page."""
        for number in range(min(max(count, 0), MOST_PAGES) if at else 0):
            page = self._read.memory.word(at + 8 * number)
            self.left -= 1
            if page is None or self.left <= 0:
                return
            self.page(kind, page)

    def address(self, kind: str, address: int, order: Optional[int] = None) -> bool:
        """Add the page at a virtual address, with all pages that were allocated together with it.

        ``order`` says how many, as a power of two; without it they are those of a compound page. Return whether the
        address is mapped.
        """
        self.left -= 1
        physical = self.physical(address) if address else None
        if physical is None:
            return False
        self.frame(kind, physical >> self.layout["page_bits"], order)
        return True

    def frame(self, kind: str, frame: int, order: Optional[int] = None) -> bool:
        """Add a page frame, with all pages that were allocated together with it. Return whether it is memory."""
        return self.page(kind, self.layout["base"] + frame * self.layout["size"], order)

    def frames(self, kind: str, first: int, count: int) -> None:
        """Add page frames that lie side by side, whatever their struct pages say."""
        self.left -= 1
        if count > 0 and self.left > 0:
            self._pages.setdefault(first, (kind, count))

    def page(self, kind: str, page: int, order: Optional[int] = None) -> bool:
        """Add a page by the address of its struct page, with all pages that were allocated together with it.

        Return whether the dump has that struct page.
        """
        layout, word = self.layout, self._read.memory.word
        self.left -= 1
        frame, rest = divmod(page - layout["base"], layout["size"])
        if page < layout["base"] or rest or self.left <= 0:
            return False
        if frame in self._pages:
            return True
        head = word(page + layout["head"]) or 0
        if head & 1 and not layout["head_is_mask"]:
            page = head - 1
            frame, rest = divmod(page - layout["base"], layout["size"])
            if page < layout["base"] or rest:
                return False
        flags = word(page + layout["flags"])
        if flags is None:
            return False
        if flags & layout["compound"]:
            order = self._order(page)
            order = order if order <= 20 else 0  # huge pages of 4 GB
        elif order is None or not 0 <= order <= _MOST_ORDER:
            order = 0
        self._pages.setdefault(frame, (kind, 1 << order))
        return True

    def is_rest(self, frame: int) -> bool:
        """Return whether a page is in use and not the first of its block: it has no references and is not compound."""
        layout = self.layout
        page = layout["base"] + frame * layout["size"]
        head, flags = self._read.memory.word(page + layout["head"]), self._read.memory.word(page + layout["flags"])
        if head is None or flags is None or head & 1 or flags & layout["compound"]:
            return False
        return self._read.number_at(page + layout["refcount"]) == 0

    def area(self, kind: str, start: int, end: int) -> None:
        """Add what is mapped at [start, end)."""
        self.left -= 1
        if 0 < start < end and self.left > 0:
            self.areas.append((kind, start, end))

    def physical(self, address: int) -> Optional[int]:
        """Return the physical address, or None. In the map of all memory one distance holds, so one walk is enough."""
        start, end = self._direct
        if not start <= address < end:
            return self._translate(address)
        if self._distance is None:
            physical = self._translate(address)
            self._distance = address - physical if physical is not None else None
            return physical
        return address - self._distance if address >= self._distance else None

    def _order(self, page: int) -> int:
        """Return the order of a compound page: how many pages were allocated together, as a power of two."""
        from drgn import FaultError, Object
        from drgn.helpers.linux.mm import compound_order

        try:
            return int(compound_order(Object(self._read.prog, "struct page *", page)))
        except (FaultError, LookupError, ValueError):
            return 0


def _map_of_all_memory(prog: Program) -> tuple[int, int]:
    """Return where the kernel has mapped all memory, as (start, end).

    Return (0, 0) if that is not known: only x86-64 has a variable for it (arch/x86/kernel/head64.c).
    """
    from drgn import FaultError

    try:
        return int(prog["page_offset_base"].value_()), int(prog["high_memory"].value_())
    except (FaultError, LookupError):
        return 0, 0
