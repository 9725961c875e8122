"""Objects that KFENCE guards, compared with its files in debugfs and with the ledger of the guest's module."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from drgnext.kernel.pages.kfence import ALLOCATED, FREED, Guarded, overwritten
from drgnext.kernel.slabs.objects import slab_objects
from tests.kernel.memory import open_kernel, opened
from tests.kernel.rare_case import RareCase
from tests.kernel.rare_case import case as rare_case

PAGE = 4096
_seldom = pytest.mark.seldom("each kernel's guest takes a minute or two")
_guest = pytest.mark.thorough("it needs a guest with KFENCE")


class Told(NamedTuple):
    """An object of /sys/kernel/debug/kfence/objects. The stacks are functions with offsets."""

    start: int
    size: int
    cache: str
    freed: bool
    pid: int
    stack: list[str]
    free_stack: list[str]


def told(case: RareCase) -> list[Told]:
    text = case.guest.said["/sys/kernel/debug/kfence/objects"]
    found = []
    for part in text.split("---------------------------------"):
        head = re.search(r"kfence-#\d+: (0x\w+)-(0x\w+), size=(\d+), cache=(\S+)", part)
        events = re.findall(
            r"^(allocated|freed) by task (\d+) on cpu (\d+) at ([\d.]+)s.*\n((?: .*\n)*)", part, re.MULTILINE
        )
        if head is None:
            continue
        stacks = {event[0]: [line.split()[0].partition("/")[0] for line in event[4].splitlines()] for event in events}
        freed = "freed" in stacks
        found.append(
            Told(
                int(head[1], 16),
                int(head[3]),
                head[4],
                freed,
                int(events[-1][1]),
                stacks["allocated"],
                stacks.get("freed", []),
            )
        )
    return found


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("6.12", False), marks=_seldom, id="6.12"),
        pytest.param(("6.12", True), marks=_seldom, id="6.12-boot"),
        pytest.param(("sid", False), id="sid"),
    ],
)
def case(request: Any) -> RareCase:
    return rare_case(*request.param)


@_guest
def test_the_pool_has_what_debugfs_says(case: RareCase) -> None:
    expected = {(one.start, one.size, one.cache, FREED if one.freed else ALLOCATED, one.pid) for one in told(case)}
    rows = case.rows("kfence", "walk", "kfence")
    found = {(row["address"], row["bytes"], row["cache"], row["state"], row["pid"]) for row in rows}
    assert len(expected) >= 25
    # Few allocations come between the two: one each minute.
    assert len(found ^ expected) <= 2, found ^ expected
    stats = dict(line.split(": ") for line in case.guest.said["/sys/kernel/debug/kfence/stats"].splitlines())
    in_use = [row for row in rows if row["state"] == ALLOCATED]
    assert abs(len(in_use) - int(stats["currently allocated"])) <= 1


@_guest
def test_the_pages_of_the_pool_are_a_kind_of_their_own(case: RareCase) -> None:
    """255 objects (CONFIG_KFENCE_NUM_OBJECTS of Debian's kernels) take two pages each, and two lead the pool."""
    kinds = {row["name"]: row["pages"] for row in case.rows("kinds", "memstat", "-v")}
    assert kinds["kfence"] == 2 * (255 + 1)


@_guest
def test_findleaks_tells_what_is_lost_in_the_pool(case: RareCase) -> None:
    """The module keeps no pointer to what it read beyond, either. All its objects come from one call of kmalloc()."""
    indirect = {row["buffer"] for row in case.rows("indirect", "findleaks", "-i")}
    assert indirect == {address for address, _size in case.planted("leaked_with")}
    groups = {(row["cache"], row["leaked"], row["bytes"]): row for row in case.rows("leaks", "findleaks", "-i")}
    assert groups.keys() == {("kmalloc-128", 8, 8 * 128), ("kmalloc-96", 1, 96)}
    first = groups["kmalloc-128", 8, 8 * 128]
    assert first["caller"].startswith("dmods_rare`guarded+")
    assert [frame["name"].partition("+")[0] for frame in first["stack"]].count("dmods_rare`rare_leak") == 1
    assert (first["kept_count"], first["kept_bytes"]) == (8, 8 * 64)
    assert first["buffer"] in {address for address, _size in case.planted("leaked")}


@_guest
def test_whatis_says_who_allocated_and_freed(case: RareCase) -> None:
    by_start = {one.start: one for one in told(case)}
    for how, state in (("held", "allocated"), ("leaked", "leaked"), ("freed", "free")):
        address, size = case.planted(how)[0]
        (row,) = case.rows("object", "whatis", hex(address + 8))
        assert (row["object"], row["size"], row["state"]) == (address, size, state)
        functions = [frame["name"] for frame in row["stack"]]
        expected = by_start[address].stack
        assert expected[0].startswith("guarded+")
        # The last one is a label of the assembler's, which has no name of its own without line tables (docs/LIMITS.md).
        assert [name.partition("`")[2] or name for name in functions][-len(expected) : -1] == expected[:-1]
        assert (row["freed_by"] is not None) == (how == "freed")
        assert not row["freed_by"] or by_start[address].free_stack[0] in row["freed_by"]


@_guest
def test_a_page_without_an_object_is_the_pools(case: RareCase) -> None:
    address, _size = case.planted("held")[0]
    guard = address // PAGE * PAGE + PAGE
    (row,) = case.rows("whatis", "whatis", hex(guard))[:1]
    assert row["kind"] == "kfence"
    assert "behind its objects" not in row["sentence"]


@_guest
def test_slabcheck_finds_what_was_written_beside_an_object(case: RareCase) -> None:
    """KFENCE sees it when the object is freed, which never happened. Nothing else is damaged."""
    ((address, size),) = case.planted("overrun")
    (row,) = case.rows("faults", "slabcheck")
    assert (row["object"], row["kind"], row["at"], row["found"]) == (address, "guarded", address + size, "78 79")


@_guest
def test_kmastat_counts_what_slabinfo_counts(case: RareCase) -> None:
    """Objects of KFENCE are in no slab of their cache. The module's own cache does not change any more."""
    lines = case.guest.said["/proc/slabinfo"].splitlines()
    (own,) = [line.split() for line in lines if line.startswith("dmods_rare ")]
    (row,) = [row for row in case.rows("caches", "kmastat") if row["cache"] == "dmods_rare"]
    made = [address for address, _size in case.planted("held_by_guarded", "leaked_with")]
    guarded = [row["address"] for row in case.rows("kfence", "walk", "kfence") if row["cache"] == "dmods_rare"]
    assert len(made) == 16
    assert row["in_use"] == len(set(made) - set(guarded))
    assert row["in_use"] + row["free"] == int(own[2])


@_guest
def test_triage_names_the_reports(case: RareCase) -> None:
    findings = {one["kind"]: one["what"] for one in case.rows("findings", "triage", "--checks", "kfence")}
    assert findings.keys() == {"kfence-report", "kfence-overwritten"}
    assert "2 invalid accesses: out-of-bounds read in rare_misuse+" in findings["kfence-report"]
    assert "; use-after-free read in rare_misuse+" in findings["kfence-report"]
    assert hex(case.planted("overrun")[0][0]) in findings["kfence-overwritten"]


@_guest
def test_a_report_of_kfence_is_not_why_the_kernel_died(case: RareCase) -> None:
    assert "KFENCE" not in str(case.answer("panicinfo")["tables"][0]["rows"])


def test_what_is_written_beside_an_object_is_found_on_both_sides() -> None:
    pattern = bytearray((0xAA ^ at & 7) for at in range(PAGE))
    page = bytearray(pattern)
    page[1000:1100] = bytes(100)
    one = Guarded(0, 0x1000, 0xFFFF888001000000 + 1000, 100, 0, ALLOCATED, 0)
    assert list(overwritten(one, bytes(page))) == []
    page[990], page[993], page[1100] = 1, 2, 3
    before, behind = overwritten(one, bytes(page))
    assert (before.at, before.found[0], before.found[-1], len(before.found)) == (one.address - 10, 1, 2, 4)
    assert (behind.at, behind.found) == (one.address + 100, b"\x03")


def test_a_kernel_without_kfence_has_no_pool() -> None:
    """Debian's 6.1 is built without it."""
    guest, _array = opened("6.1")
    assert slab_objects(open_kernel(guest)).guarded.pool is None
