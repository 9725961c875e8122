"""`walk` in a kernel: every page, and the other lists."""

from __future__ import annotations

import argparse
import re
from typing import Optional

import drgn
import pytest
from drgn.helpers.linux.pid import for_each_task

from dmods.errors import UsageError, UserError
from drgnext.commands import walk
from drgnext.commands._walkers import WALKERS
from drgnext.kernel.dump.target import Kernel
from fixtures import kernel
from tests.kernel.memory import open_kernel


@pytest.fixture(scope="module")
def guest() -> kernel.Guest:
    return kernel.guest("6.1")


@pytest.fixture(scope="module")
def subject(guest: kernel.Guest) -> Kernel:
    return open_kernel(guest)


def lines(subject: Kernel, walker: Optional[str], word: Optional[str] = None) -> list[str]:
    (table,) = walk.run(subject, argparse.Namespace(walker=walker, word=word, json=False)).tables
    if table.lines is not None:
        return "".join(table.lines).splitlines()
    return [str(row[0]) for row in table.rows]


def rows(subject: Kernel, walker: str, word: Optional[str] = None) -> list[tuple[object, ...]]:
    (table,) = walk.run(subject, argparse.Namespace(walker=walker, word=word, json=True)).tables
    return [tuple(row) for row in table.rows]


def test_allpages_are_all_the_pages_that_the_kernel_has(guest: kernel.Guest, subject: Kernel) -> None:
    zones = re.findall(r"^\s+present\s+(\d+)", (guest.oracle / "zoneinfo").read_text(), re.M)
    vmemmap = subject.prog["vmemmap"].value_()
    found = rows(subject, "allpages")
    assert len(found) == sum(map(int, zones))
    assert all(address == vmemmap + pfn * 64 for address, pfn, _kind in found)  # type: ignore[operator]
    assert lines(subject, "allpages") == [f"{address:#x}" for address, _pfn, _kind in found]


def test_allpages_of_one_kind(subject: Kernel) -> None:
    everything = rows(subject, "allpages")
    for kind in ("anon", "page_table", "zfs"):
        wanted = [row for row in everything if row[2] == kind]
        assert rows(subject, "allpages", kind) == wanted
        assert lines(subject, "allpages", kind) == [f"{row[0]:#x}" for row in wanted]
    with pytest.raises(UsageError, match="no kind of page is called 'fish'"):
        lines(subject, "allpages", "fish")


def test_tasks_are_drgns(subject: Kernel) -> None:
    wanted = [(task.value_(), task.pid.value_()) for task in for_each_task(subject.prog)]
    assert [(row[0], row[1]) for row in rows(subject, "task")] == wanted
    assert "in_futex" in {row[3] for row in rows(subject, "task")}


def test_the_guests_own_cache_and_vmalloc(guest: kernel.Guest, subject: Kernel) -> None:
    assert "dmods_guest" in {row[1] for row in rows(subject, "kmem_cache")}
    area = guest.truth["vmalloc_address"]
    assert [row for row in rows(subject, "vmap") if row[1] <= area < row[2]]  # type: ignore[operator]
    assert [row[1] for row in rows(subject, "zone")] == ["DMA", "DMA32"]


def test_usage(subject: Kernel) -> None:
    assert lines(subject, None) == list(WALKERS)
    with pytest.raises(UsageError, match="takes no further word"):
        lines(subject, "task", "1")


def test_a_cache_that_the_dump_may_lack(guest: kernel.Guest, subject: Kernel) -> None:
    with pytest.raises(UsageError, match="no slab cache is called 'fish'"):
        lines(subject, "slab", "fish")
    cut = open_kernel(guest)
    size = drgn.sizeof(cut.prog.type("struct kmem_cache"))
    address = next(row[0] for row in rows(subject, "kmem_cache") if row[1] == "task_struct")
    assert isinstance(address, int)
    cut.prog.add_memory_segment(address, size, _missing)
    with pytest.raises(
        UserError, match="'task_struct', but some caches may be missing: the list of slab caches leads into memory"
    ):
        lines(cut, "slab", "task_struct")


def _missing(at: int, _size: int, _offset: int, _physical: bool) -> bytes:
    raise drgn.FaultError("not in the dump", at)
