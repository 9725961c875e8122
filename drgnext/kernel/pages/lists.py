"""The heads of the kernel's lists that say what ``struct page`` does not: per-CPU free pages, stacks, vmalloc.

The engine follows the lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from drgnext.kernel.pages.layout import enumerators

if TYPE_CHECKING:
    from drgn import Object, Program

    from dmods._engine import PageLists


def page_lists(prog: Program, notes: list[str]) -> PageLists:
    """Return the heads and offsets of the lists for the engine.

    A list that cannot be found is left out, with a note.
    """
    return {
        "per_cpu": _noted(notes, "pages on per-CPU free lists", _per_cpu(prog)),
        "vmap": _noted(notes, "pages of vmalloc", vmap_heads(prog)),
        "vmap_area": _offsets(prog, "struct vmap_area", "list", "va_start", "va_end"),
        "owned": [],
        "areas": [],
        **_tasks(prog, notes),  # type: ignore[typeddict-item]
    }


def _noted(notes: list[str], what: str, found: Iterable[Any]) -> list[Any]:
    """Return what ``found`` yields. An error ends the list and becomes a note."""
    from drgn import FaultError

    answer = []
    try:
        for one in found:
            answer.append(one)
    except (LookupError, AttributeError, FaultError) as error:
        notes.append(f"{what} were not all found, so they may count as other kernel pages: {error}")
    return answer


def _offsets(prog: Program, structure: str, *members: str) -> tuple[int, ...]:
    """Return the offsets of the members, in bytes."""
    from drgn import offsetof

    described = prog.type(structure)
    return tuple(int(offsetof(described, member)) for member in members)


def zones(prog: Program) -> Iterator[Object]:
    """Yield every ``struct zone`` that has memory."""
    from drgn.helpers.linux.mmzone import for_each_online_pgdat

    for node in for_each_online_pgdat(prog):
        for zone in node.node_zones:
            if zone.present_pages.value_():
                yield zone


def _per_cpu(prog: Program) -> Iterator[tuple[int, int]]:
    """Yield (address of the list's head, order of its pages) for each per-CPU free list."""
    from drgn import offsetof, sizeof
    from drgn.helpers.linux.cpumask import for_each_possible_cpu

    pages = prog.type("struct per_cpu_pages")
    lists, first = pages.member("lists").type.length or 0, offsetof(pages, "lists")
    # Since 5.14 each low order has MIGRATE_PCPTYPES lists (include/linux/mmzone.h). The lists of huge pages follow:
    # one, or since 6.8 two, which is fewer than MIGRATE_PCPTYPES.
    types = enumerators(prog, "enum migratetype")["MIGRATE_PCPTYPES"]
    low, huge = lists // types, _huge_order(prog)
    orders = [number // types if number // types < low else huge for number in range(lists)]
    size = sizeof(prog.type("struct list_head"))
    try:
        shifts = prog["__per_cpu_offset"]
        cpus = [shifts[cpu].value_() for cpu in for_each_possible_cpu(prog)]
    except KeyError:  # CONFIG_SMP=n
        cpus = [0]
    for zone in zones(prog):
        # Up to 5.13 the lists are within a struct per_cpu_pageset.
        mine = zone.per_cpu_pageset if hasattr(zone, "per_cpu_pageset") else zone.pageset.pcp.address_of_()
        base = mine.value_()
        for shift in cpus:
            for number, order in enumerate(orders):
                yield (base + shift + first + number * size) & ((1 << 64) - 1), order


def _huge_order(prog: Program) -> int:
    """Return HPAGE_PMD_ORDER. A page table of the last level is one page of 8-byte entries."""
    return int(prog["PAGE_SHIFT"].value_()) - 3


def vmap_heads(prog: Program) -> Iterator[int]:
    """Yield the addresses of the heads of the lists of vmap areas.

    There is one list. Since 6.9 there is one for each of several nodes.
    """
    from drgn import ObjectAbsentError

    try:
        nodes = prog["vmap_nodes"]
    except KeyError:
        yield prog["vmap_area_list"].address_of_().value_()
        return
    try:
        count = prog["nr_vmap_nodes"].value_()
        first = nodes.read_()
    except ObjectAbsentError:  # with one CPU there is one node, and gcc may optimise away the pointer
        count, first = 1, prog.variable("single", "mm/vmalloc.c").address_of_()
    for number in range(min(count, 1 << 10)):  # there are num_possible_cpus() nodes, at most 128
        yield first[number].busy.head.address_of_().value_()


def _tasks(prog: Program, notes: list[str]) -> dict[str, Any]:
    """Return where the list of tasks begins, and the offsets that lead to their stacks."""
    try:
        return {
            "first_task": prog["init_task"].address_of_().value_(),
            "task": _offsets(prog, "struct task_struct", "tasks", "signal", "thread_node", "stack"),
            "thread_head": _offsets(prog, "struct signal_struct", "thread_head")[0],
            "stack_size": prog["THREAD_SIZE"].value_(),
        }
    except LookupError as error:
        notes.append(f"kernel stacks were not found, so they count as other kernel pages: {error}")
        return {"first_task": 0, "task": (0, 0, 0, 0), "thread_head": 0, "stack_size": 0}
