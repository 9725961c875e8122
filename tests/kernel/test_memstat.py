"""memstat, compared with what the guest's kernel said of each of its pages during the panic."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dmods._engine import PAGE_KINDS
from dmods.errors import UserError
from drgnext.commands import memstat
from drgnext.kernel.pages.counters import counters
from drgnext.kernel.pages.frame_ranges import present_pages
from drgnext.kernel.pages.kinds import BUCKETS, KINDS, buckets
from drgnext.kernel.pages.memmap import PageArray
from fixtures import _cache, kernel
from fixtures.kernel import compress
from fixtures.limits import HANG
from tests.kernel.memory import RELEASES, Changed, open_kernel, opened, words

# include/uapi/linux/kernel-page-flags.h
BITS = {
    "DIRTY": 4,
    "LRU": 5,
    "SLAB": 7,
    "WRITEBACK": 8,
    "BUDDY": 10,
    "MMAP": 11,
    "ANON": 12,
    "SWAPCACHE": 13,
    "SWAPBACKED": 14,
    "HUGE": 17,
    "UNEVICTABLE": 18,
    "HWPOISON": 19,
    "NOPAGE": 20,
    "KSM": 21,
    "OFFLINE": 23,
    "PGTABLE": 26,
    "RESERVED": 32,
}

# Kinds that the kernel's flags cannot tell apart. "rest" is a page without any flag.
TOLD = {
    "hugetlb_free": "hugetlb",
    "block_device": "file",
    **dict.fromkeys(("percpu_free", "stack", "vmalloc", "movable", "zsmalloc", "kernel", "large_kmalloc"), "rest"),
    **dict.fromkeys(("ring", "pipe", "socket", "page_pool", "percpu", "page_directory", "bpf"), "rest"),
    **dict.fromkeys(("block", "ftrace", "dma_pool"), "rest"),
}


def told(flags: int, ksm: bool) -> str:
    """Return the kind that /proc/kpageflags shows.

    Without ``ksm``, every anonymous page carries KPF_KSM (6.10 to 7.0).
    """
    has = {name for name, bit in BITS.items() if flags >> bit & 1}
    for name, kind in (
        ("RESERVED", "reserved"),
        ("BUDDY", "free"),
        ("HWPOISON", "hwpoison"),
        ("HUGE", "hugetlb"),
        ("OFFLINE", "offline"),
        ("PGTABLE", "page_table"),
        ("SLAB", "slab"),
    ):
        if name in has:
            return kind
    if "ANON" in has:
        return "ksm" if ksm and "KSM" in has else "anon"
    if "SWAPBACKED" in has:
        return "shmem"
    if "LRU" in has:
        return "file" if has & {"MMAP", "DIRTY", "WRITEBACK", "UNEVICTABLE"} else "cachelist"
    return "rest"


@pytest.mark.parametrize("release", RELEASES)
def test_every_page_is_what_the_kernel_said(release: str) -> None:
    guest, array = opened(release)
    flags = words(guest.oracle / "panic.flags")
    names = {value: told(value, not release.startswith("6.12")) for value in set(flags)}
    differ: Counter[tuple[str, str]] = Counter()
    total = 0
    for pfn, kind in array.classify():
        total += 1
        said = names[flags[pfn]]
        if kind == "exec":  # the kernel's flags do not show this: see below
            assert said in ("file", "cachelist")
        elif kind == "ksm" and release.startswith("6.12"):
            assert said == "anon"
        elif TOLD.get(kind, kind) != said:
            differ[kind, said] += 1
    assert total == present_pages(array._prog) > 60_000
    assert sum(differ.values()) <= total / 1000, differ


@pytest.mark.parametrize("release", RELEASES)
def test_the_pages_that_the_guest_knows(release: str) -> None:
    guest, array = opened(release)
    answer = array.classify()
    expected = {
        "anon": "anon",
        "thp": "anon",
        "locked": "anon",
        "ksm": "ksm",
        "hugetlb": "hugetlb",
        "shared": "shmem",
        "memfd": "shmem",
        "tmpfs": "shmem",
        "clean": "cachelist",
        "dirty": "file",
        "mapped": "file",
        "library": "exec",
        "program": "exec",
        "vmalloc": "vmalloc",
        **dict.fromkeys(("perf_ring", "uring", "uring_entries", "packet_ring"), "ring"),
    }
    for known in expected.keys() - guest.lacks:
        kind = expected[known]
        frames = set(words(guest.oracle / f"known.{known}"))
        found = Counter(answer.kind(pfn) for pfn in frames)
        if frames or known not in UNSEEN:
            assert found == {kind: len(frames)}, known
    assert array.count().kinds["ring"] >= sum(guest.truth[f"{known}_pages"] for known in (*UNSEEN, "packet_ring"))


#: /proc/PID/pagemap does not show the page frames of these in every kernel.
UNSEEN = {"perf_ring", "uring", "uring_entries"}


@pytest.mark.parametrize("release", RELEASES)
def test_data_that_waits_in_pipes_and_sockets(release: str) -> None:
    """The guest knows how much it wrote and nobody read. TCP has a counter of its own, which includes parts of slabs.

    A fragment has up to 32 KB, and the last one of a socket is not full. Some pipes keep a page for their next data.
    """
    guest, array = opened(release)
    kinds = array.count().kinds
    assert 0 <= kinds["pipe"] - guest.truth["pipe_pages"] <= 10
    waits = guest.truth["tcp_bytes"] / 4096
    (told,) = [one.pages for one in counters(array._prog, kinds) if one.what.startswith("TCP")]
    assert waits <= kinds["socket"] <= 1.1 * waits
    assert kinds["socket"] == pytest.approx(told, rel=0.1)


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_guest_counted_itself(release: str) -> None:
    """/proc/meminfo and /proc/zoneinfo were read just before: they agree within a hundredth, or a few pages."""
    guest, array = opened(release)
    counted = array.count()
    kinds = counted.kinds
    meminfo = dict(re.findall(r"^([\w()]+):\s+(\d+)", (guest.oracle / "meminfo").read_text(), re.M))
    pages = {name: int(value) // 4 for name, value in meminfo.items()}
    pages |= {name: int(meminfo[name]) * 512 for name in ("HugePages_Free", "HugePages_Total")}

    def close(found: int, name: str) -> None:
        assert found == pytest.approx(pages[name], rel=0.01, abs=70), name

    close(kinds["free"], "MemFree")  # NR_FREE_PAGES: without those on per-CPU lists
    close(kinds["stack"], "KernelStack")
    close(kinds["page_table"], "PageTables")
    close(kinds["shmem"], "Shmem")
    assert kinds["hugetlb"] + kinds["hugetlb_free"] == pages["HugePages_Total"]
    assert kinds["hugetlb_free"] == pages["HugePages_Free"]
    present = re.findall(r"^\s+present\s+(\d+)", (guest.oracle / "zoneinfo").read_text(), re.M)
    assert counted.total == sum(map(int, present))
    assert counted.notes == ()
    assert array.notes == []


@pytest.mark.parametrize("release", RELEASES)
def test_kdumps_and_what_drgn_reads_say_the_same(release: str) -> None:
    guest, array = opened(release)
    wanted = array.classify()
    forms = [("-c", "-d", compress.LEVELS.get(release, "31"))]
    if release == "6.12":
        forms += [("-l", "-d", "31"), ("-z", "-d", "31"), ("-F", "-c", "-d", "31")]
    for form in forms:
        other = PageArray(open_kernel(guest, guest.dumped(*form)))
        assert other.native == ("-F" not in form)
        found = other.classify()
        assert found.numbers == wanted.numbers, form
        assert (found.counted.skipped > 0) == other.native
    kernel_of_drgn = open_kernel(guest)
    kernel_of_drgn.path = None
    through = PageArray(kernel_of_drgn)
    assert not through.native
    assert "drgn reads the dump" in through.notes[0]
    assert through.classify().numbers == wanted.numbers


def test_the_seven_lines_and_their_total() -> None:
    guest, _array = opened("6.1")
    args = argparse.Namespace(verbose=True, cache=10_000)
    report = memstat.run(open_kernel(guest), args)
    summary, kinds, counters_of_kernel, identity = report.tables
    assert counters_of_kernel.name == "counters"
    rows = [dict(zip((column.name for column in summary.columns), row)) for row in summary.rows]
    assert tuple(row["bucket"] for row in rows) == BUCKETS
    assert sum(int(row["pages"]) for row in rows) == report.totals["pages"] == report.totals["present_pages"]
    assert sum(float(row["percent"]) for row in rows) == pytest.approx(100)
    assert all(row["bytes"] == int(row["pages"]) * 4096 for row in rows)
    by_bucket: Counter[str] = Counter()
    for _title, bucket, pages, *_rest in kinds.rows:
        by_bucket[str(bucket)] += int(pages)  # type: ignore[arg-type]
    assert by_bucket == Counter({str(row["bucket"]): int(row["pages"]) for row in rows if row["pages"]})
    ((lookups, hits, misses, remembered),) = identity.rows
    assert lookups == int(hits) + int(misses) > 1000  # type: ignore[arg-type]
    assert 50 < int(misses) < 500  # type: ignore[arg-type]
    assert remembered == 10_000


def test_every_kind_of_the_engine_has_its_line() -> None:
    assert set(KINDS) == set(PAGE_KINDS)
    assert buckets(dict.fromkeys(PAGE_KINDS, 1)).keys() == {*BUCKETS, "Unknown"}


def test_a_small_cache_misses_more_and_says_the_same() -> None:
    _guest, array = opened("6.1")
    large, small = array.count(), array.count(remember=1)
    assert small.kinds == large.kinds
    assert small.identity["misses"] > large.identity["misses"]
    assert sum(small.identity[name] for name in ("hits", "misses")) == sum(
        large.identity[name] for name in ("hits", "misses")
    )


def drgn_memstat(guest: kernel.Guest, *args: str) -> subprocess.CompletedProcess[str]:
    drgn = Path(sys.executable).with_name("drgn")
    symbols = [word for file in (guest.vmlinux, *guest.modules) for word in ("-s", file)]
    command = [drgn, "-q", "-c", guest.vmcore, *symbols, _cache.ROOT / "memstat", *args]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_the_command_as_typed() -> None:
    guest, array = opened("6.1")
    text = drgn_memstat(guest).stdout.splitlines()
    assert text[0] == "Page Summary                Pages                MB  %Tot"
    assert text[1] == "------------     ----------------  ----------------  ----"
    counted = array.count()
    for line, (bucket, pages) in zip(text[2:9], buckets(counted.kinds).items()):
        assert re.fullmatch(rf"{re.escape(bucket)} +{pages} +{pages * 4096 >> 20} +\d+%", line)
    assert text[10].split() == ["Total", str(counted.total), str(counted.total * 4096 >> 20)]
    answer: Any = json.loads(drgn_memstat(guest, "-v", "--json").stdout)
    assert {row["bucket"]: row["pages"] for row in answer["tables"][0]["rows"]} == buckets(counted.kinds)
    assert {row["name"]: row["pages"] for row in answer["tables"][1]["rows"]} == {
        name: pages for name, pages in counted.kinds.items() if pages
    }


def summary(text: str) -> dict[str, int]:
    """Return the pages of each line of a `kmem -i`."""
    return {name.strip(): int(pages) for name, pages in re.findall(r"^ *([A-Z ]+?) +(\d+) +[\d.]+ ?[KMG]B", text, re.M)}


def agrees_with(theirs: dict[str, int], array: PageArray) -> None:
    kinds = array.count().kinds
    # Counters lag behind by the part that each CPU has not added yet.
    assert kinds["free"] == pytest.approx(theirs["FREE"], abs=64)
    cached = sum(kinds[kind] for kind in ("shmem", "exec", "file", "block_device", "cachelist", "swapcache"))
    assert cached == pytest.approx(theirs["CACHED"] + theirs["BUFFERS"], abs=64)
    assert kinds["hugetlb"] + kinds["hugetlb_free"] == theirs["TOTAL HUGE"]
    assert kinds["hugetlb_free"] == theirs["HUGE FREE"]


@pytest.mark.parametrize("release", RELEASES)
def test_drgns_own_summary_agrees(release: str, capsys: pytest.CaptureFixture[str]) -> None:
    """drgn shows the kernel's own counters, not pages: two ways to one figure."""
    from drgn.commands import run_command

    _guest, array = opened(release)
    run_command(array._prog, "crash kmem -i")
    theirs = summary(capsys.readouterr().out)
    agrees_with(theirs, array)
    # The counter of slab pages includes kmalloc's large allocations, which are not slabs.
    assert 0.8 * theirs["SLAB"] < array.count().kinds["slab"] <= theirs["SLAB"]


@pytest.mark.thorough("crash(8) is slow")
def test_crash_agrees_where_it_is_right() -> None:
    guest, array = opened("6.1")
    command = ["crash", "-s", str(guest.vmlinux), str(guest.vmcore)]
    answer = subprocess.run(command, input="kmem -i\n", capture_output=True, text=True, check=False, timeout=HANG)
    theirs = summary(answer.stdout)
    agrees_with(theirs, array)
    # crash 8.0.2 counts too few slab pages on 6.1; the guest's flags say that memstat's count is right.
    flags = words(guest.oracle / "panic.flags")
    said = sum(value >> BITS["SLAB"] & 1 for value in flags)
    assert abs(array.count().kinds["slab"] - said) <= 10


def kind_at(changed: Changed, numbers: bytes, pfn: int) -> str:
    before = 0
    for start, end in changed.array.ranges:
        if start <= pfn < end:
            return PAGE_KINDS[numbers[before + pfn - start]]
        before += end - start
    raise AssertionError(pfn)


@pytest.mark.parametrize("release", RELEASES)
def test_zfs_file_data(release: str) -> None:
    """OpenZFS (module/os/linux/zfs/abd_os.c) sets PG_private and a number of its own.

    No guest runs it, so a page is marked.
    """
    changed = Changed(release)
    frames = list(words(changed.guest.oracle / "known.vmalloc"))[:5]
    layout = changed.array.layout
    for pfn in frames:
        page = changed.page(pfn)
        changed.put(page + layout["flags"], changed.get(page + layout["flags"]) | layout["has_private"])
        changed.put(page + layout["private"], 0x2F5ABDF11ECAC4E)
    counts, numbers = changed.classify()
    assert counts["kinds"]["zfs"] == len(frames)
    assert {kind_at(changed, numbers, pfn) for pfn in frames} == {"zfs"}
    assert buckets(counts["kinds"])["ZFS File Data"] == len(frames)


def test_what_is_garbled_or_missing_is_counted() -> None:
    changed = Changed("6.1")
    layout = changed.array.layout
    before, _numbers = changed.classify()
    assert not any(before["odd"].values())
    anonymous, clean, mapped = (
        list(words(changed.guest.oracle / f"known.{kind}")) for kind in ("anon", "clean", "mapped")
    )
    garbled, lost, tail = anonymous[:7], clean[0], anonymous[10]
    for pfn in garbled:
        changed.put(changed.page(pfn) + layout["mapping"], 0x1234567890ABCDEF)
    # A mapping that points nowhere, a tail whose head lies beyond it, a free block as large as the address space.
    changed.put(changed.page(lost) + layout["mapping"], 0xFFFF_FFFF_FFFF_0000)
    changed.put(changed.page(tail) + layout["head"], layout["base"] + (tail + 5) * layout["size"] + 1)
    free = next(
        pfn
        for pfn in range(*changed.array.ranges[-1])
        if changed.array._memmap.read(layout["base"] + pfn * layout["size"] + layout["mapcount"], 4)
        == b"\x7f\xff\xff\xff"
    )
    changed.put(changed.page(free) + layout["private"], 77)
    changed.missing.add(changed.page(mapped[0]) >> 12)
    counts, numbers = changed.classify()
    odd = counts["odd"]
    assert odd["nonsense"] == len(garbled)
    assert (odd["lost_heads"], odd["orders"]) == (1, 1)
    assert 64 <= odd["missing"] <= 65
    assert counts["identity"]["lost"] == 1
    assert kind_at(changed, numbers, lost) == "cachelist"
    assert kind_at(changed, numbers, mapped[0]) == "unknown"
    assert counts["kinds"]["unknown"] == odd["missing"] + len(garbled) + 1
    assert sum(counts["kinds"].values()) == sum(before["kinds"].values())


def test_a_cycle_of_vmas_ends() -> None:
    """The tree of a mapping leads back to its root. Its pages count as not executable, or as what is found."""
    changed = Changed("6.1")
    layout, memmap = changed.array.layout, changed.array._memmap
    mapped = next(iter(words(changed.guest.oracle / "known.mapped")))
    mapping = changed.get(changed.page(mapped) + layout["mapping"])
    root = int.from_bytes(memmap.read(mapping + layout["i_mmap"], 8), "little")
    node = memmap.translate(root)
    assert root
    assert node is not None
    for side in ("left", "right"):
        changed.put(node + layout[side], root)  # type: ignore[literal-required]
    before, _ = Changed("6.1").classify()
    counts, numbers = changed.classify()
    assert counts["identity"]["cut"] == 1
    assert kind_at(changed, numbers, mapped) == "file"
    assert counts["kinds"] == before["kinds"]


def test_a_truncated_dump_is_answered_as_far_as_it_goes(tmp_path: Path) -> None:
    guest, whole = opened("6.1")
    cut = tmp_path / "vmcore"
    subprocess.run(["cp", "--sparse=always", guest.vmcore, cut], check=True)
    # The kernel's first allocations lie at the end of memory: the lists of memory, and page tables.
    layout = whole.layout
    middle = whole._memmap.translate(layout["base"] + 40_000 * layout["size"])
    assert middle is not None
    with open(cut, "r+b") as file:
        file.truncate(middle)
    array = PageArray(open_kernel(guest, cut))
    found = array.classify()
    missing = found.counted.kinds["unknown"]
    assert any(note.startswith(f"{missing} pages have no struct page in the dump") for note in found.counted.notes)
    assert any("lacks the list of memory" in note for note in array.notes)
    assert missing > whole.count().total / 10
    known = {pfn: kind for pfn, kind in found if kind != "unknown"}
    assert all(whole.classify().kind(pfn) == kind for pfn, kind in list(known.items())[:100])
    assert found.counted.total == len(found.numbers) >= whole.count().total


def test_a_dump_without_what_says_where_memory_is(tmp_path: Path) -> None:
    """Only its headers are left."""
    guest, _array = opened("6.1")
    cut = tmp_path / "vmcore"
    with open(guest.vmcore, "rb") as whole, open(cut, "wb") as file:
        file.write(whole.read(1 << 20))
    with pytest.raises(UserError, match=r"lacks|does not say"):
        PageArray(open_kernel(guest, cut)).count()
