"""Every page of the machine and what it is used for: the engine's answer, prepared for commands and for Python.

memmap = page_array(kernel)
memmap.count().kinds            # {"anon": 4069, ...}
memmap.classify().kind(pfn)     # "anon"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, Optional

from dmods._engine import PAGE_KINDS, Memmap, Physical, Slabs
from dmods.base.dataclass import dataclass
from dmods.errors import MissingDebugInfoError, UserError
from drgnext.kernel.dump.image import native, page_tables, through
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.dump.vmcoreinfo import numbers
from drgnext.kernel.pages.frame_ranges import (
    Range,
    all_frames,
    common_frames,
    count_pages,
    memory_frames,
    offline_frames,
    valid_frames,
    without_frames,
)
from drgnext.kernel.pages.layout import cleared_bit, page_layout
from drgnext.kernel.pages.lists import page_lists
from drgnext.kernel.pages.owners import owned_pages

if TYPE_CHECKING:
    from drgn import Program

    from dmods._engine import SlabsDescription


Progress = Optional[Callable[[int], object]]

_MOST_TASKS = 1000
_known: list[Any] = []  # the last kernel that a command asked about, and its page array

REMEMBERED = 10_000  # mappings; Sun's memstat remembered 10,000 vnodes


@dataclass(frozen=True)
class Counted:
    """The number of pages of each kind, and how the count went.

    ``kinds`` has every kind of ``drgnext.kernel.pages.kinds``. ``identity`` is about file mappings: "hits" and "misses"
    of their cache, "lost" for mappings that could not be read, "cut" for trees of VMAs that were not read to their end.
    ``skipped`` counts pages in known free blocks, whose ``struct page`` need not be read. ``notes`` say what is wrong
    in the page array, one line each.
    """

    kinds: Mapping[str, int]
    identity: Mapping[str, int]
    skipped: int
    notes: tuple[str, ...]

    @property
    def total(self) -> int:
        """Return the number of all pages."""
        return sum(self.kinds.values())


@dataclass(frozen=True)
class Classified:
    """The kind of each page.

    ``numbers`` has one byte for each page frame of ``ranges``, in order. The byte is an index into ``PAGE_KINDS``.
    """

    counted: Counted
    ranges: tuple[Range, ...]
    numbers: bytes

    def kind(self, pfn: int) -> Optional[str]:
        """Return the kind of a page frame, or None if it is not in the ranges."""
        before = 0
        for start, end in self.ranges:
            if start <= pfn < end:
                return PAGE_KINDS[self.numbers[before + pfn - start]]
            before += end - start
        return None

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield (page frame, kind) in ascending order."""
        pfns = (pfn for start, end in self.ranges for pfn in range(start, end))
        return zip(pfns, (PAGE_KINDS[number] for number in self.numbers))


_ODD = {
    "missing": "{} pages have no struct page in the dump",
    "nonsense": "{} pages have a struct page with impossible content",
    "lost_heads": "{} pages point to a compound head that is not a compound page",
    "orders": "{} free blocks have an impossible size: each counts as one page",
    "used_in_free": "{} pages lie within free blocks, but their struct page says in use: they count as in use",
    "repeated": "{} pages are left out: the page tables map the same struct pages repeatedly, which no kernel does",
}
_ODD_FILES = {
    "lost": "{} file mappings could not be read: their pages count as page cache",
    "cut": "{} file mappings have a damaged or too large tree of VMAs: their pages count as not executable",
}


class PageArray:
    """The page array of one dump. ``notes`` say what was not found, and how the dump is read."""

    def __init__(self, kernel: Kernel) -> None:
        """Find the page array.

        Raises UserError if the debug information does not fit, or if dmods does not support the machine.
        """
        from drgn import FaultError

        self._prog = prog = kernel.prog
        self.notes: list[str] = []
        vmcoreinfo = numbers(prog)
        try:
            self.layout = page_layout(prog, vmcoreinfo)
            self._tables = page_tables(prog, vmcoreinfo)
        except FaultError as error:
            raise UserError(
                f"the dump lacks memory that leads to the page array: {error}",
                "the dump is truncated, or was filtered too much: copy or take it again",
            ) from None
        except (MissingDebugInfoError, LookupError) as error:
            raise UserError(
                f"dmods cannot find {error}",
                "load the kernel's vmlinux with its debug information: drgn -s vmlinux ...",
            ) from None
        self.native = True  # the engine reads the dump itself
        physical = self._physical(kernel)
        self._memmap = self._made(physical)
        if self._find_page_tables():
            self._memmap = self._made(physical)
        self._gathered = False

    def _made(self, physical: Physical) -> Memmap:
        """Return the engine's view of the page array. Raises UserError if its description contradicts itself."""
        try:
            return Memmap(physical, self._tables, self.layout)
        except ValueError as error:
            raise UserError(
                f"the page tables in the dump, or the page array in vmlinux, are impossible: {error}",
                "check that the vmlinux is the right one, or copy the dump again",
            ) from None

    def _physical(self, kernel: Kernel) -> Physical:
        """Return the dump for the engine. drgn reads it if the engine cannot, which becomes a note."""
        from drgn import FaultError

        found, why = (None, "the kernel is running") if kernel.live else native(kernel.path)
        if found is not None:
            # Check that the engine and drgn read the same bytes through the page tables (here the kernel's own name).
            name = self._prog["init_uts_ns"]
            address, size = name.address_ or 0, name.type_.size or 0
            said = self._made(found).read(address, size)
            with suppress(FaultError):
                if said == self._prog.read(address, size):
                    return found
            why = "the engine reads other bytes than drgn at init_uts_ns"
        self.native = False
        self.notes.append(f"drgn reads the dump for dmods, which is slower: {why}")
        return through(self._prog)

    def _find_page_tables(self) -> bool:
        """Add the types of page tables and guard pages to the layout. Return whether the layout changed.

        Before 6.11 the bit that marks page tables is a macro that VMCOREINFO lacks, and its value has changed. So the
        bit comes from a page that is a page table: one of some process.
        """
        types = self.layout["types"]
        if any(kind == "page_table" for _mask, _value, kind in types):
            return False
        bit = next(filter(None, map(self._table_bit, self._page_directories())), 0)
        if not bit:
            self.notes.append(
                "page tables count as other kernel pages: no process has a page table to learn their type from"
            )
            return False
        # The bit of guard pages has always followed the bit of page tables (include/linux/page-flags.h).
        self.layout["types"] = [*types, cleared_bit(bit, "page_table"), cleared_bit(bit << 1, "guard")]
        return True

    def _page_directories(self) -> Iterator[int]:
        """Yield the addresses of some processes' topmost page tables."""
        from drgn import FaultError
        from drgn.helpers.linux.pid import for_each_task

        try:
            for number, task in enumerate(for_each_task(self._prog)):
                if task.mm:
                    yield task.mm.pgd.value_()
                if number == _MOST_TASKS:
                    return
        except (FaultError, LookupError):
            return

    def _table_bit(self, directory: int) -> int:
        """Return the bit of page_type that a page table under ``directory`` has cleared, or 0 if unknown."""
        root = self._memmap.translate(directory)
        table = None if root is None else self._memmap.some_last_table(root)
        if table is None:
            return 0
        layout = self.layout
        page = layout["base"] + (table >> layout["page_bits"]) * layout["size"]
        cleared = ~int.from_bytes(self._memmap.read(page + layout["mapcount"], 4), "little") & 0xFFFFFFFF
        # For tables that are charged to a memory cgroup, 5.10 clears a second bit below it.
        bit = 1 << cleared.bit_length() >> 1
        known = any(mask & bit for mask, _value, _kind in layout["types"])
        return 0 if known or cleared > 0xFFFF else bit

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """Return the page frames of RAM that have a ``struct page``. Memory blocks that are offline have none."""
        valid, memory = self._found(valid_frames), self._found(memory_frames)
        if valid and memory:
            both = common_frames(valid, memory)
            online = without_frames(both, self._found(offline_frames))
            if online != both:
                pages = count_pages(both) - count_pages(online)
                self.notes.append(f"{pages} pages of RAM are in memory blocks that are offline: they are not counted")
            return tuple(online)
        if memory:
            self.notes.append("the list of memory sections is missing from the dump: all RAM is counted")
        elif valid:
            self.notes.append("the list of resources names no RAM: every page frame with a struct page is counted")
        else:
            valid = self._found(all_frames)
            self.notes.append("the dump lacks the list of memory: every page frame up to the highest is counted")
        if not memory and not valid:
            raise UserError("the dump does not say what memory there is", "the dump is truncated: copy it again")
        return tuple(memory or valid)

    def _found(self, find: Callable[[Program], list[Range]]) -> list[Range]:
        """Return the ranges that ``find`` returns, or [] if the dump lacks them."""
        from drgn import FaultError

        with suppress(FaultError, LookupError):
            return find(self._prog)
        return []

    def count(self, remember: int = REMEMBERED, progress: Progress = None) -> Counted:
        """Return the number of pages of each kind.

        ``remember`` is how many mappings the cache holds. ``progress`` gets the number of bytes that are done.
        """
        self._gather(progress)
        return self.counted(self._memmap.classify(list(self.ranges), remember, False, progress)[0])

    def classify(
        self, ranges: Optional[list[Range]] = None, remember: int = REMEMBERED, progress: Progress = None
    ) -> Classified:
        """Return the kind of each page in the ranges.

        The ranges are page frames, sorted and without overlaps. Without them all memory is classified.
        """
        self._gather(progress)
        chosen = list(self.ranges) if ranges is None else ranges
        answer, numbers = self._memmap.classify(chosen, remember, True, progress)
        return Classified(self.counted(answer), tuple(chosen), numbers or b"")

    def slabs(self, description: SlabsDescription, progress: Progress = None) -> Slabs:
        """Return all slab objects, found in one pass over all memory.

        ``progress`` gets the number of bytes that are done.
        """
        self._gather(progress)
        try:
            return Slabs(self._memmap, list(self.ranges), description, REMEMBERED, progress)
        except ValueError as error:
            raise UserError(
                f"the description of slabs is impossible: {error}", "check that the vmlinux is the right one"
            ) from None

    @property
    def engine(self) -> Memmap:
        """Return the engine's view of the page array and of the kernel's memory."""
        return self._memmap

    def read(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes of the kernel's memory, up to the first one that is missing."""
        return self._memmap.read(address, size)

    def translate(self, address: int) -> Optional[int]:
        """Return the physical address, or None where nothing is mapped."""
        return self._memmap.translate(address)

    def counted(self, answer: Mapping[str, Any]) -> Counted:
        """Return the engine's counts as a Counted, with its notes."""
        notes = [text.format(answer["odd"][name]) for name, text in _ODD.items() if answer["odd"][name]]
        notes += [
            text.format(answer["identity"][name]) for name, text in _ODD_FILES.items() if answer["identity"][name]
        ]
        if answer["kinds"]["movable"] and not self.layout["movers"]:
            notes.append(
                "pages of zsmalloc (zram, zswap), if there are any, count as drivers' movable pages: load the debug "
                "information of the module zsmalloc"
            )
        return Counted(answer["kinds"], answer["identity"], answer["skipped"], tuple(notes))

    def _gather(self, progress: Progress) -> None:
        """Have the engine follow the lists of pages, once."""
        if self._gathered:
            return
        self._gathered = True
        lists = page_lists(self._prog, self.notes)
        owned = owned_pages(self._prog, self._memmap, self.layout, self._tables, self.notes)
        lists["owned"], lists["areas"] = owned
        said = self._memmap.gather(lists, list(self.ranges), progress)
        if said["broken"]:
            self.notes.append(
                f"{said['broken']} lists of free pages, tasks or vmap areas are damaged, or lead into memory that the "
                "dump lacks: the rest of each is missing"
            )
        if said["endless"]:
            self.notes.append("stacks or vmap areas claim more memory than there is: dmods left out the rest of them")


def page_array(kernel: Kernel) -> PageArray:
    """Return the page array of this kernel. It is made once for a dump."""
    if kernel.live or _known[:1] != [kernel]:
        _known[:] = [kernel, PageArray(kernel)]
    array: PageArray = _known[1]
    return array
