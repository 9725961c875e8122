"""memstat, compared page by page with the kernel's own stable_page_flags() during the panic.

The kernel says less than memstat does: it knows no "executable", and no owner of pages without a type. So its flags
leave some kinds possible. Where the guest knows a page, only one kind is right.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import drgn
import pytest

from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.pages.kinds import KINDS, buckets
from drgnext.kernel.pages.memmap import Classified, PageArray, page_array
from fixtures import kernel
from fixtures.kernel import packages
from tests.kernel.crashed import open_program

# /proc/kpageflags: include/uapi/linux/kernel-page-flags.h, include/linux/kernel-page-flags.h.
BITS = {
    "locked": 0, "dirty": 4, "lru": 5, "slab": 7, "writeback": 8, "buddy": 10, "mmap": 11, "anon": 12, "swapcache": 13,
    "swapbacked": 14, "tail": 16, "huge": 17, "unevictable": 18, "hwpoison": 19, "nopage": 20, "ksm": 21, "thp": 22,
    "offline": 23, "pgtable": 26, "reserved": 32,
}  # fmt: skip

#: Kinds of pages that the kernel uses itself and has no flag for.
OWN = {
    *("kernel", "vmalloc", "stack", "zsmalloc", "large_kmalloc", "movable", "guard", "ring", "pipe", "socket"),
    *("page_pool", "bpf", "percpu", "page_directory", "block", "ftrace", "dma_pool"),
}

#: The kinds that the guest knows (fixtures/kernel/guest/*.c).
KNOWN = {
    "anon": "anon", "thp": "anon", "locked": "anon", "ksm": "ksm", "hugetlb": "hugetlb", "shared": "shmem",
    "memfd": "shmem", "tmpfs": "shmem", "clean": "cachelist", "dirty": "file", "mapped": "file", "library": "exec",
    "program": "exec", "vmalloc": "vmalloc", "perf_ring": "ring", "uring": "ring", "uring_entries": "ring",
    "packet_ring": "ring", "bpf_ring": "bpf", "bpf_arena": "bpf", "page_pool": "page_pool",
}  # fmt: skip


#: Pages in batches at most: PAGEVEC_SIZE (include/linux/pagevec.h), 15 before 6.11, on each of the two processors.
BATCHES = 2 * 31

#: The kinds that each flag leaves possible. The first flag that a page has decides.
LEFT = (
    ("reserved", {"reserved"}),
    ("buddy", {"free"}),
    ("huge", {"hugetlb", "hugetlb_free"}),
    ("slab", {"slab"}),
    ("pgtable", {"page_table"}),
    ("offline", {"offline"}),
    ("ksm", {"ksm"}),
    ("anon", {"anon"}),
    ("swapbacked", {"shmem", "swapcache"}),
    *(
        (bit, {"exec", "file", "block_device", "ring", "bpf"})
        for bit in ("mmap", "dirty", "writeback", "locked", "unevictable")
    ),
    ("lru", {"exec", "cachelist"}),
)


def possible(flags: int, references: int, release: str) -> set[str]:
    """Return the kinds that are right for a page with these flags and references."""
    said = {name for name, bit in BITS.items() if flags >> bit & 1}
    if said == {"mmap"}:  # until 6.12, zsmalloc keeps offsets where other pages count mappings
        return {"zsmalloc", "ring", "bpf"}
    if "ksm" in said and release.startswith("6.12"):
        # From 6.10 to 7.0 every anonymous page has KSM, and slab pages have pointers where others have flags.
        said = {"slab"} if "slab" in said else said - {"ksm"}
        if said >= {"anon"}:
            return {"anon", "ksm"} if "huge" not in said else {"hugetlb", "hugetlb_free"}
    for name, kinds in LEFT:
        if name in said:
            return kinds
    return OWN if references else OWN | {"percpu_free"}


def open_guest(guest: kernel.Guest, vmcore: Path) -> PageArray:
    program = drgn.Program()
    program.set_core_dump(str(vmcore))
    program.load_debug_info([str(path) for path in (guest.vmlinux, *guest.modules)])
    return page_array(Kernel(program))


def read(path: Path, code: str) -> Sequence[int]:
    found = array(code)
    found.frombytes(path.read_bytes())
    return found


class Judged:
    """A guest whose every page was classified."""

    def __init__(self, release: str) -> None:
        self.guest = kernel.guest("6.1", levels=4) if release == FOUR_LEVELS else kernel.guest(release)
        self.pages = open_guest(self.guest, self.guest.vmcore)
        self.classified: Classified = self.pages.classify()
        self.flags = read(self.guest.oracle / "panic.flags", "Q")
        self.references = read(self.guest.oracle / "panic.references", "I")


#: The page tables of most machines. QEMU's processor has five levels, and then the kernel uses them.
FOUR_LEVELS = "6.1 with four levels"


@pytest.fixture(
    scope="module",
    params=[*packages.TESTED, pytest.param(FOUR_LEVELS, marks=pytest.mark.thorough("it needs a guest of its own"))],
)
def judged(request: Any) -> Judged:
    return Judged(request.param)


def test_every_page_is_what_the_kernel_says(judged: Judged) -> None:
    release = judged.guest.kernel.name
    wrong: Counter[tuple[str, str]] = Counter()
    batched = 0
    for frame, kind in judged.classified:
        flags, references = judged.flags[frame], judged.references[frame]
        if kind not in possible(flags, references, release):
            said = " ".join(name for name, bit in BITS.items() if flags >> bit & 1)
            # On its way to the LRU list, a page of the cache has a reference of its batch (mm/swap.c). The kernel does
            # not show yet what the page is.
            if not said and kind in ("cachelist", "exec") and references >= 2:
                batched += 1
            else:
                wrong[kind, f"{said or 'nothing'}, {references} references"] += 1
    assert not wrong
    assert batched <= BATCHES


def test_pages_that_the_guest_knows(judged: Judged) -> None:
    lacks = set(judged.guest.lacks)
    if not judged.guest.kernel.name.startswith("6.12"):
        lacks.add("bpf_arena")  # fixtures/kernel/guest/bpf.c says why
    if judged.guest.kernel.name == "5.10":
        lacks.add("page_pool")  # the mark is of 5.14
    assert lacks < KNOWN.keys()
    for kind in KNOWN.keys() - lacks:
        expected = KNOWN[kind]
        frames = read(judged.guest.oracle / f"known.{kind}", "Q")
        found = Counter(judged.classified.kind(frame) for frame in frames)
        # /proc/PID/pagemap does not show every ring in every kernel.
        assert found == {expected: len(frames)} or (expected == "ring" and not frames), kind


def test_page_tables_that_the_module_knows(judged: Judged) -> None:
    """The kernel marks those above the last two levels since 6.16. They lead to a stack, and to the vmalloc area."""
    frames = read(judged.guest.oracle / "known.tables", "Q")
    assert len(frames) == (2 if judged.guest.kernel.source.architecture == "arm64" else 5)
    assert {judged.classified.kind(frame) for frame in frames} <= {"page_directory", "page_table"}


def test_what_the_guest_says_of_pools(judged: Judged) -> None:
    kinds, truth = judged.classified.counted.kinds, judged.guest.truth
    # ftrace counts the pages of its functions. It also keeps 64 pages with the names of tasks.
    assert 0 <= kinds["ftrace"] - truth["ftrace_pages"] <= 64
    assert kinds["dma_pool"] * 4096 == sum(truth[f"dma_pool_{name}"] for name in ("dma", "dma32", "kernel"))
    (percpu,) = re.findall(r"^Percpu: +(\d+) kB", (judged.guest.oracle / "meminfo").read_text(), re.M)
    # What each CPU has from the start is in memory that was reserved at boot.
    (embedded,) = re.findall(r"percpu: Embedded (\d+) pages/cpu", judged.guest.console)
    assert kinds["percpu"] == int(percpu) // 4 - int(embedded) * 2


def test_requests_of_block_devices(judged: Judged) -> None:
    """Each queue also has an array that leads to every one of its requests."""
    from drgn.helpers.linux.block import for_each_disk
    from drgn.helpers.linux.mm import follow_phys

    prog = open_program(judged.guest)
    kinds: Counter[Any] = Counter()
    for disk in for_each_disk(prog):
        devices = disk.queue.tag_set
        for number in range(devices.nr_hw_queues if devices else 0):
            tags = devices.tags[number]
            for tag in range(tags.nr_tags):
                physical = follow_phys(prog["init_mm"].address_of_(), tags.static_rqs[tag])
                kinds[judged.classified.kind(int(physical) >> 12)] += 1
    assert kinds.keys() == {"block"}


def test_little_is_left_without_an_owner(judged: Judged) -> None:
    """Large kmalloc is not marked before 6.15. The kernel counts it as slab."""
    from drgnext.kernel.pages.counters import counters

    counted = judged.classified.counted
    found = {one.what: one.pages for one in counters(open_program(judged.guest), counted.kinds)}
    assert counted.kinds["kernel"] - found.get("large kmalloc", 0) < counted.total / 200


def test_the_files_of_proc_hardly_differ(judged: Judged) -> None:
    """/proc/kpageflags was read a little before the crash. At most one page in a thousand has changed since."""
    release = judged.guest.kernel.name
    before = read(judged.guest.oracle / "kpageflags", "Q")
    differ = sum(kind not in possible(before[frame], 0, release) for frame, kind in judged.classified)
    assert differ <= len(before) / 1000


def test_totals(judged: Judged) -> None:
    counted = judged.pages.count()
    assert counted.kinds == {name: judged.classified.counted.kinds[name] for name in KINDS}
    assert sum(buckets(counted.kinds).values()) == counted.total
    present = re.findall(r"^\s+present\s+(\d+)", (judged.guest.oracle / "zoneinfo").read_text(), re.MULTILINE)
    assert counted.total == sum(map(int, present))
    assert not counted.notes
    assert counted.kinds["unknown"] == 0


def test_what_the_kernel_counts(judged: Judged) -> None:
    """The kernel's own counters were read a little before the crash."""
    vmstat = dict(line.split() for line in (judged.guest.oracle / "vmstat").read_text().splitlines())
    kinds = judged.classified.counted.kinds
    truth = judged.guest.truth
    assert kinds["page_table"] == pytest.approx(int(vmstat["nr_page_table_pages"]), abs=20)
    assert kinds["stack"] * 4 == pytest.approx(int(vmstat["nr_kernel_stack"]), abs=64)
    assert kinds["zsmalloc"] * 4096 == truth["zram_bytes"]
    assert kinds["hugetlb"] + kinds["hugetlb_free"] == truth["hugetlb_set_aside"] * 512
    assert kinds["hugetlb"] == truth["hugetlb_pages"]
    assert kinds["ksm"] == truth["ksm_shared"]
    assert kinds["shmem"] == pytest.approx(int(vmstat["nr_shmem"]), abs=20)
    slab = int(vmstat["nr_slab_reclaimable"]) + int(vmstat["nr_slab_unreclaimable"])
    assert kinds["slab"] + kinds["large_kmalloc"] == pytest.approx(slab, rel=0.15)
    assert kinds["free"] == pytest.approx(int(vmstat["nr_free_pages"]), abs=256)
    zoneinfo = (judged.guest.oracle / "zoneinfo").read_text()
    per_cpu = re.findall(r"^\s+count:\s+(\d+)", zoneinfo, re.MULTILINE)
    assert kinds["percpu_free"] == pytest.approx(sum(map(int, per_cpu)), abs=256)


def test_the_same_of_a_compressed_dump(judged: Judged) -> None:
    pages = open_guest(judged.guest, judged.guest.kdump)
    assert pages.native
    assert pages.classify().numbers == judged.classified.numbers


@pytest.mark.thorough("it needs a guest of its own")
def test_secret_memory_is_the_programs() -> None:
    """No file has the pages of memfd_secret(2), and the kernel cannot drop them."""
    guest = kernel.guest("6.1", secret=True)
    frames = read(guest.oracle / "known.secret", "Q")
    assert len(frames) == 130
    classified = open_guest(guest, guest.vmcore).classify()
    assert {classified.kind(frame) for frame in frames} == {"secret"}
    assert KINDS["secret"].bucket == "Anon"
