"""The kernel guests are as described: they died of the given cause, and hold the memory that they know of."""

from __future__ import annotations

import re
from array import array
from pathlib import Path

import drgn
import pytest
from drgn.helpers.linux.pid import for_each_task

from fixtures import kernel
from fixtures.kernel import packages
from fixtures.kernel.machine import said_by_init
from tests import quick

#: The console's message for each crash, and the function of guest/dmods_guest.c whose instruction trapped.
REASONS = {
    "sysrq": ("Kernel panic - not syncing: sysrq triggered crash", None),
    "null": ("BUG: kernel NULL pointer dereference, address: 0000000000000028", "guest_crash_null"),
    "softirq": ("Kernel panic - not syncing: Fatal exception in interrupt", "guest_timer_function"),
    "hardirq": ("Kernel panic - not syncing: Fatal exception in interrupt", "guest_irq_function"),
    "jump": ("BUG: kernel NULL pointer dereference, address: 0000000000000000", "0x0"),
    "bug": ("kernel BUG at", "guest_crash_bug"),
    "nmi": ("Kernel panic - not syncing: NMI: Not continuing", "guest_crash_nmi"),
}

# Bits of /proc/kpageflags (include/uapi/linux/kernel-page-flags.h).
DIRTY, LRU, BUDDY, MMAP, ANON, SWAPBACKED, TAIL, HUGE, UNEVICTABLE, KSM, THP = (
    1 << bit for bit in (4, 5, 10, 11, 12, 14, 16, 17, 18, 21, 22)
)
KINDS = DIRTY | LRU | BUDDY | MMAP | ANON | SWAPBACKED | HUGE | UNEVICTABLE | KSM | THP

#: The kernel's flags for the pages of each kind that the guest knows.
KNOWN = {
    "anon": LRU | MMAP | ANON | SWAPBACKED,
    "thp": LRU | MMAP | ANON | SWAPBACKED | THP,
    "ksm": DIRTY | LRU | MMAP | ANON | SWAPBACKED | KSM,
    "locked": LRU | MMAP | ANON | SWAPBACKED | UNEVICTABLE,
    "hugetlb": MMAP | ANON | HUGE,
    "shared": DIRTY | LRU | MMAP | SWAPBACKED,
    "memfd": LRU | MMAP | SWAPBACKED,
    "tmpfs": DIRTY | LRU | SWAPBACKED,
    "clean": LRU,
    "dirty": DIRTY | LRU,
    "mapped": LRU | MMAP,
    "library": LRU | MMAP,
    "vmalloc": 0,
}


def words(path: Path) -> array[int]:
    found = array("Q")
    found.frombytes(path.read_bytes())
    return found


@pytest.mark.parametrize("crash", kernel.CRASHES)
@pytest.mark.parametrize("release", ["6.1", "6.12"])
def test_it_died_as_told(release: str, crash: str) -> None:
    guest = kernel.guest(release, crash)
    reason, function = REASONS[crash]
    assert reason in guest.console
    if function:
        # On a slow host the kernel may have told of a stall before it.
        trapped = re.search(rf"RIP: 0010:({function})(?:\+0x([0-9a-f]+))?", guest.console)
        assert trapped
        if function != "0x0":
            program = open_with_drgn(guest, guest.vmcore)
            at = guest.truth[f"at_{crash}"]
            symbol = program.symbol(at)
            assert symbol.name == function
            # The NMI comes at a jump to itself, so its address is exact as well.
            assert at - symbol.address == int(trapped.group(2), 16)


@pytest.mark.parametrize("release", packages.TESTED)
def test_known_pages_are_what_the_kernel_says(release: str) -> None:
    guest = kernel.guest(release)
    flags = words(guest.oracle / "panic.flags")
    # From 6.10 to 7.0 every anonymous page carries KPF_KSM (the test was changed for a mask that they all match).
    anonymous = {kind for kind, expected in KNOWN.items() if expected & ANON}
    assert guest.lacks < KNOWN.keys()
    for kind in KNOWN.keys() - guest.lacks:
        expected = KNOWN[kind]
        frames = words(guest.oracle / f"known.{kind}")
        assert len(frames) == guest.truth[f"{kind}_pages"] > 0
        ignored = KSM if release.startswith("6.12") and kind in anonymous else 0
        ignored |= {"hugetlb": DIRTY | LRU, "memfd": DIRTY, "thp": DIRTY | LRU | SWAPBACKED}.get(kind, 0)
        found = {flags[frame] & KINDS & ~ignored for frame in frames}
        assert found == {expected & ~ignored}, f"{kind}: {[hex(one) for one in found]}"


@pytest.mark.parametrize("release", packages.TESTED)
def test_memory_hardly_changes_between_the_files_and_the_panic(release: str) -> None:
    guest = kernel.guest(release)
    before, then = words(guest.oracle / "kpageflags"), words(guest.oracle / "panic.flags")
    # Memory begins at 1 GiB there (QEMU's hw/arm/virt.c).
    first = 1 << 18 if guest.kernel.source.architecture == "arm64" else 0
    assert len(before) == len(then) == first + (256 << 8)
    kinds = sum(one & KINDS != other & KINDS for one, other in zip(before, then))
    assert kinds <= len(then) / 1000


@pytest.mark.parametrize("release", packages.TESTED)
def test_what_else_the_guest_knows(release: str) -> None:
    guest = kernel.guest(release)
    truth = guest.truth
    meminfo = dict(re.findall(r"^(\w+):\s+(\d+)", (guest.oracle / "meminfo").read_text(), re.MULTILINE))
    assert (meminfo["HugePages_Total"], meminfo["HugePages_Free"]) == ("6", "3")
    assert len(set(words(guest.oracle / "known.ksm"))) == truth["ksm_shared"] == 50
    assert truth["swap_kilobytes"] >= 4 * truth["swap_asked"]
    assert int(meminfo["Dirty"]) >= 4 * truth["dirty_pages"]
    slab = re.search(r"^dmods_guest\s+(\d+)", (guest.oracle / "slabinfo").read_text(), re.MULTILINE)
    assert slab
    assert int(slab.group(1)) >= truth["slab_objects"]


def test_a_line_of_init_is_found_around_lines_of_the_kernel() -> None:
    between = "[    2.500000][   C1] clocksource: x\n[    2.500001] y\n"
    console = f"[    1.000000] first\ndmods guest: wai{between}ts\n[    3.0] no\n"
    assert said_by_init(console) == "dmods guest: waits\n[    3.0] no\n"


def open_with_drgn(guest: kernel.Guest, vmcore: Path) -> drgn.Program:
    program = drgn.Program()
    program.set_core_dump(str(vmcore))
    program.load_debug_info([str(path) for path in (guest.vmlinux, *guest.modules)])
    return program


@pytest.mark.parametrize("form", quick.only(["elf"], ["elf", "kdump"]))
@pytest.mark.parametrize("release", packages.TESTED)
def test_dumps_open_and_hold_the_guest(release: str, form: str) -> None:
    guest = kernel.guest(release)
    vmcore = guest.kdump if form == "kdump" else guest.vmcore
    program = open_with_drgn(guest, vmcore)
    assert program["UTS_RELEASE"].string_().decode() == guest.release
    names = [task.comm.string_().decode() for task in for_each_task(program)]
    for way in ("in_pause", "in_sleep", "in_poll", "in_read", "in_futex"):
        assert names.count(way) == guest.truth[f"threads_{way}"]
    area = guest.truth["vmalloc_address"]
    pages = guest.truth["vmalloc_pages"]
    assert program.read(area + (pages - 1) * 4096, 4096) == b"\x5a" * 4096
