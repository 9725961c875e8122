"""Where the lists begin that tell what ``struct page`` does not: per-CPU free pages, stacks, vmalloc.

The engine follows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from drgnext.kernel.layout import enumerators

if TYPE_CHECKING:
    from dmods._engine import PageLists


def page_lists(prog: Any, notes: list[str]) -> PageLists:
    """What cannot be found leaves its list out, with a note."""
    return {
        "per_cpu": _noted(notes, "pages on per-CPU free lists", _per_cpu(prog)),
        "vmap": _noted(notes, "vmalloc's pages", _vmap(prog)),
        "vmap_area": _offsets(prog, "struct vmap_area", "list", "va_start", "va_end"),
        **_tasks(prog, notes),  # type: ignore[typeddict-item]
    }


def _noted(notes: list[str], what: str, found: Iterable[Any]) -> list[Any]:
    from drgn import FaultError

    answer = []
    try:
        for one in found:
            answer.append(one)
    except (LookupError, AttributeError, FaultError) as error:
        notes.append(f"{what} are not all told apart from the kernel's others: {error}")
    return answer


def _offsets(prog: Any, structure: str, *members: str) -> tuple[int, ...]:
    from drgn import offsetof

    described = prog.type(structure)
    return tuple(int(offsetof(described, member)) for member in members)


def zones(prog: Any) -> Iterator[Any]:
    """Every ``struct zone`` that has memory."""
    from drgn.helpers.linux.mmzone import for_each_online_pgdat

    for node in for_each_online_pgdat(prog):
        for zone in node.node_zones:
            if zone.present_pages.value_():
                yield zone


def _per_cpu(prog: Any) -> Iterator[tuple[int, int]]:
    """(address of the list's head, order of its pages)."""
    from drgn import offsetof, sizeof
    from drgn.helpers.linux.cpumask import for_each_possible_cpu

    pages = prog.type("struct per_cpu_pages")
    lists, first = pages.member("lists").type.length, int(offsetof(pages, "lists"))
    # include/linux/mmzone.h since 5.14: MIGRATE_PCPTYPES lists for each of the low orders, then those of huge pages
    # (one, or since 6.8 two), which are fewer than MIGRATE_PCPTYPES.
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
        # Until 5.13 within a struct per_cpu_pageset.
        mine = zone.per_cpu_pageset if hasattr(zone, "per_cpu_pageset") else zone.pageset.pcp.address_of_()
        base = mine.value_()
        for shift in cpus:
            for number, order in enumerate(orders):
                yield (base + shift + first + number * size) & ((1 << 64) - 1), order


def _huge_order(prog: Any) -> int:
    """HPAGE_PMD_ORDER: a table of the last level has a page of 8-byte entries."""
    return int(prog["PAGE_SHIFT"].value_()) - 3


def _vmap(prog: Any) -> Iterator[int]:
    """Addresses of the heads of vmap areas' lists: one, or since 6.9 one for each of several nodes."""
    from drgn import ObjectAbsentError

    try:
        nodes = prog["vmap_nodes"]
    except KeyError:
        yield prog["vmap_area_list"].address_of_().value_()
        return
    try:
        count = prog["nr_vmap_nodes"].value_()
        first = nodes.read_()
    except ObjectAbsentError:  # on one CPU there is one node, which gcc may optimise the pointer to away
        count, first = 1, prog.variable("single", "mm/vmalloc.c").address_of_()
    for number in range(min(count, 1 << 10)):  # num_possible_cpus() of them, 128 at most
        yield first[number].busy.head.address_of_().value_()


def _tasks(prog: Any, notes: list[str]) -> dict[str, Any]:
    try:
        return {
            "first_task": prog["init_task"].address_of_().value_(),
            "task": _offsets(prog, "struct task_struct", "tasks", "signal", "thread_node", "stack"),
            "thread_head": _offsets(prog, "struct signal_struct", "thread_head")[0],
            "stack_size": prog["THREAD_SIZE"].value_(),
        }
    except LookupError as error:
        notes.append(f"stacks are not told apart from the kernel's other pages: {error}")
        return {"first_task": 0, "task": (0, 0, 0, 0), "thread_head": 0, "stack_size": 0}
