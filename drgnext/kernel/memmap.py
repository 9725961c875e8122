"""Every page of the machine and what it is used for: the engine's answer, made ready for commands and for Python.

memmap = memmap.of(kernel)
memmap.count().kinds            # {"anon": 4069, ...}
memmap.classify().kind(pfn)     # "anon"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, Optional

from dmods._engine import PAGE_KINDS, Memmap, Physical
from dmods.errors import MissingDebugInfoError, UserError
from drgnext.kernel import ranges as frames
from drgnext.kernel.layout import cleared_bit, page_layout
from drgnext.kernel.lists import page_lists
from drgnext.kernel.memory import native, page_tables, through
from drgnext.kernel.ranges import Range
from drgnext.kernel.target import Kernel
from drgnext.kernel.vmcoreinfo import numbers

Progress = Optional[Callable[[int], object]]

_MOST_TASKS = 1000
_known: list[Any] = []  # the kernel that was asked about last, and its page array

REMEMBERED = 10_000  # mappings, as Sun's memstat remembered 10,000 vnodes


@dataclass(frozen=True)
class Counted:
    """Pages by kind (every kind of ``drgnext.kernel.kinds``), and how it went.

    ``identity``: "hits" and "misses" of the cache of mappings, "lost" mappings that could not be read, trees of VMAs
    that were "cut". ``skipped``: pages whose ``struct page`` need not be read, in known free blocks. ``notes``: what is
    wrong in the page array, one line each.
    """

    kinds: Mapping[str, int]
    identity: Mapping[str, int]
    skipped: int
    notes: tuple[str, ...]

    @property
    def total(self) -> int:
        return sum(self.kinds.values())


@dataclass(frozen=True)
class Classified:
    """A kind for each page: ``numbers`` has a byte for each page frame of ``ranges`` in turn, an index into
    ``PAGE_KINDS``."""

    counted: Counted
    ranges: tuple[Range, ...]
    numbers: bytes

    def kind(self, pfn: int) -> Optional[str]:
        """None for a page frame that is not in the ranges."""
        before = 0
        for start, end in self.ranges:
            if start <= pfn < end:
                return PAGE_KINDS[self.numbers[before + pfn - start]]
            before += end - start
        return None

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """(page frame, kind) in ascending order."""
        pfns = (pfn for start, end in self.ranges for pfn in range(start, end))
        return zip(pfns, (PAGE_KINDS[number] for number in self.numbers))


_ODD = {
    "missing": "{} pages have no struct page in the dump",
    "nonsense": "{} pages have a struct page that makes no sense",
    "lost_heads": "{} pages belong to compound pages that are none",
    "orders": "{} free blocks have sizes that cannot be: each is counted as one page",
    "used_in_free": "{} pages lie within free blocks and say that they are used: they are believed",
    "repeated": "{} pages are left out: page tables lead to the same struct pages again and again, as no kernel's do",
}
_ODD_FILES = {
    "lost": "{} file mappings could not be read: their pages count as page cache",
    "cut": "{} file mappings have a tree of VMAs that is damaged or too large: their pages count as not executable",
}


class PageArray:
    """The page array of one dump. ``notes`` say what could not be found, and how the dump is read."""

    def __init__(self, kernel: Kernel) -> None:
        """Raises UserError where the kernel's debug information, or its machine, is not what is needed."""
        from drgn import FaultError

        self._prog = prog = kernel.prog
        self.notes: list[str] = []
        vmcoreinfo = numbers(prog)
        try:
            self.layout = page_layout(prog, vmcoreinfo)
            self._tables = page_tables(prog, vmcoreinfo)
        except FaultError as error:
            raise UserError(
                f"the dump lacks what leads to the page array: {error}",
                "it is cut off, or was filtered too much: copy it anew",
            ) from None
        except (MissingDebugInfoError, LookupError) as error:
            raise UserError(
                f"cannot make out {error}", "load the kernel's vmlinux with its debug information: drgn -s vmlinux ..."
            ) from None
        self.native = True  # the engine reads the dump itself
        physical = self._physical(kernel)
        self._memmap = self._made(physical)
        if self._find_page_tables():
            self._memmap = self._made(physical)
        self._gathered = False

    def _made(self, physical: Physical) -> Memmap:
        try:
            return Memmap(physical, self._tables, self.layout)
        except ValueError as error:
            raise UserError(
                f"what the dump says of its page tables, or vmlinux of the page array, cannot be: {error}",
                "is it the right vmlinux, and the dump undamaged? copy it anew",
            ) from None

    def _physical(self, kernel: Kernel) -> Physical:
        from drgn import FaultError

        found, why = (None, "it is running") if kernel.live else native(kernel.path)
        if found is not None:
            # The kernel's name of itself, through the page tables: does the engine find what drgn finds?
            name = self._prog["init_uts_ns"]
            said = self._made(found).read(name.address_, name.type_.size)
            with suppress(FaultError):
                if said == self._prog.read(name.address_, name.type_.size):
                    return found
            why = "the engine does not find in it what drgn finds"
        self.native = False
        self.notes.append(f"drgn reads the dump, which is slower: {why}")
        return through(self._prog)

    def _find_page_tables(self) -> bool:
        """Before 6.11 the bit that marks page tables is a macro that VMCOREINFO lacks, and it has moved. So some
        process' page table is looked up, and what its page says is taken. Whether the layout has changed."""
        types = self.layout["types"]
        if any(kind == "page_table" for _mask, _value, kind in types):
            return False
        bit = next(filter(None, map(self._table_bit, self._page_directories())), 0)
        if not bit:
            self.notes.append("page tables are not told apart from the kernel's other pages: no process has one")
            return False
        # Guard pages have had the bit after that of page tables ever since (include/linux/page-flags.h).
        self.layout["types"] = [*types, cleared_bit(bit, "page_table"), cleared_bit(bit << 1, "guard")]
        return True

    def _page_directories(self) -> Iterator[int]:
        """Addresses of some processes' topmost tables."""
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
        """The bit of page_type that a page table under ``directory`` has cleared; 0 where that cannot be told."""
        root = self._memmap.translate(directory)
        table = None if root is None else self._memmap.some_last_table(root)
        if table is None:
            return 0
        layout = self.layout
        page = layout["base"] + (table >> layout["page_bits"]) * layout["size"]
        cleared = ~int.from_bytes(self._memmap.read(page + layout["mapcount"], 4), "little") & 0xFFFFFFFF
        # 5.10 clears a second bit, below it, for tables that are charged to a memory cgroup.
        bit = 1 << cleared.bit_length() >> 1
        known = any(mask & bit for mask, _value, _kind in layout["types"])
        return 0 if known or cleared > 0xFFFF else bit

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """The page frames of memory that have a ``struct page``."""
        valid, memory = self._found(frames.valid), self._found(frames.memory)
        if valid and memory:
            return tuple(frames.common(valid, memory))
        if memory:
            self.notes.append("the list of memory sections is not in the dump: all RAM is counted")
        elif valid:
            self.notes.append("the list of resources names no RAM: every page frame with a struct page is counted")
        else:
            valid = self._found(frames.highest)
            self.notes.append("the dump lacks the list of memory: every page frame up to the highest is counted")
        if not memory and not valid:
            raise UserError("the dump does not say what memory there is", "it is cut off: copy it anew")
        return tuple(memory or valid)

    def _found(self, find: Callable[[Any], list[Range]]) -> list[Range]:
        from drgn import FaultError

        with suppress(FaultError, LookupError):
            return find(self._prog)
        return []

    def count(self, remember: int = REMEMBERED, progress: Progress = None) -> Counted:
        """Pages by kind. ``remember``: how many mappings the cache holds; ``progress`` gets bytes done."""
        self._gather(progress)
        return _counted(self._memmap.classify(list(self.ranges), remember, False, progress)[0])

    def classify(
        self, ranges: Optional[list[Range]] = None, remember: int = REMEMBERED, progress: Progress = None
    ) -> Classified:
        """A kind for each page of the ranges (page frames, sorted and apart); of all memory unless given."""
        self._gather(progress)
        chosen = list(self.ranges) if ranges is None else ranges
        answer, numbers = self._memmap.classify(chosen, remember, True, progress)
        return Classified(_counted(answer), tuple(chosen), numbers or b"")

    def _gather(self, progress: Progress) -> None:
        if self._gathered:
            return
        self._gathered = True
        said = self._memmap.gather(page_lists(self._prog, self.notes), list(self.ranges), progress)
        if said["broken"]:
            self.notes.append(
                f"{said['broken']} lists of free pages, tasks or vmap areas are broken: what follows is missing"
            )
        if said["endless"]:
            self.notes.append("stacks or vmap areas claim more memory than there is: the rest of them is left out")


def of(kernel: Kernel) -> PageArray:
    """The page array of this kernel; made once for a dump."""
    if kernel.live or _known[:1] != [kernel]:
        _known[:] = [kernel, PageArray(kernel)]
    array: PageArray = _known[1]
    return array


def _counted(answer: Mapping[str, Any]) -> Counted:
    notes = [text.format(answer["odd"][name]) for name, text in _ODD.items() if answer["odd"][name]]
    notes += [text.format(answer["identity"][name]) for name, text in _ODD_FILES.items() if answer["identity"][name]]
    return Counted(answer["kinds"], answer["identity"], answer["skipped"], tuple(notes))
