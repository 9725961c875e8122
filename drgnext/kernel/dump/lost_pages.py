"""Pages of slabs that makedumpfile left out because it does not know the kernel's ``struct page``.

Linux 7.1 renamed page.compound_head to compound_info, and made it a mask. makedumpfile up to 1.7.8 does not know the
new name: it reads the second ``struct page`` of a compound page as that of a page by itself, and its ``mapping`` says
user data. So dumps without user data (bit 8 of the dump level; Debian's kdump-tools asks for 31) lack the second page
of each slab that has several, and of kmalloc's large blocks (measured: 235 of 235; with level 23 none).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Optional

from drgnext.kernel.dump.dumpfile import dump_level

if TYPE_CHECKING:
    from drgn import Object, Program

_RENAMED = b"\nOFFSET(page.compound_info)="
_USER_DATA = 8
_MOST_TASKS = 16  # on each side of init_task: any page that is there, or lacks, decides
_WITHOUT = "makedumpfile up to 1.7.8 takes them for user data on Linux 7.1 and later"
_CURE = "take the next dump with user data: makedumpfile -d 23 (kdump-tools: MAKEDUMP_ARGS; RHEL: core_collector)"
_CERTAIN = (
    "the dump lacks the second page of each slab that has several: {without}{level}. Objects and lists there are "
    "missing, and counts that depend on them say so; {cure}"
)
_MAYBE = "the dump may lack the second page of each slab that has several: {without}{level}; {cure}"


def lost_slab_pages(prog: Program, path: Optional[str]) -> Optional[str]:
    """Return a note with the cause and the cure if the dump lacks such pages, else None. It needs types."""
    if not _is_renamed(prog) or not _lacks_second_pages(prog):
        return None
    return _CERTAIN.format(without=_WITHOUT, level=_level(path), cure=_CURE)


def maybe_lost_slab_pages(prog: Program, path: Optional[str]) -> Optional[str]:
    """Return a note if the dump may lack such pages by its level, else None. It needs no types."""
    if not _is_renamed(prog) or not (dump_level(path) or 0) & _USER_DATA:
        return None
    return _MAYBE.format(without=_WITHOUT, level=_level(path), cure=_CURE)


def _is_renamed(prog: Program) -> bool:
    with suppress(LookupError):
        return _RENAMED in b"\n" + bytes(prog["VMCOREINFO"].string_())
    return False


def _level(path: Optional[str]) -> str:
    level = dump_level(path)
    return f" (dump level {level})" if level is not None else ""


def _lacks_second_pages(prog: Program) -> bool:
    """Return whether a slab of tasks lacks its second page, and has the first one and, if there is one, the third.

    The slabs of tasks always have several pages. A dump that is cut lacks all pages behind some page.
    """
    for first, count in _slabs_of_tasks(prog):
        there = [_is_there(prog, first + number) for number in range(min(count, 3))]
        if len(there) > 1 and there[0]:
            return not there[1] and all(there[2:])
    return False


def _slabs_of_tasks(prog: Program) -> Iterator[tuple[int, int]]:
    """Yield (first page frame, number of pages) of slabs of tasks, as far as the list of tasks is there."""
    from drgn import FaultError
    from drgn.helpers.linux.mm import compound_head, compound_order, page_to_pfn, virt_to_page

    for forward in (True, False):
        with suppress(FaultError, LookupError, AttributeError, ValueError):
            for task in _tasks(prog, forward):
                head = compound_head(virt_to_page(task))
                order = int(compound_order(head))
                if 0 < order < 12:
                    yield int(page_to_pfn(head)), 1 << order


def _tasks(prog: Program, forward: bool) -> Iterator[Object]:
    """Yield the tasks next to init_task. Raises drgn.FaultError where the list leads into a page that is missing."""
    from drgn import container_of

    head = prog["init_task"].tasks.address_of_()
    at = head.next if forward else head.prev
    for _count in range(_MOST_TASKS):
        if at == head:
            return
        yield container_of(at, "struct task_struct", "tasks")
        at = at.next if forward else at.prev


def _is_there(prog: Program, frame: int) -> bool:
    """Return whether the dump has a page frame."""
    from drgn import FaultError

    try:
        prog.read(frame << int(prog["PAGE_SHIFT"]), 1, True)
    except (FaultError, ValueError, OverflowError):
        return False
    return True
