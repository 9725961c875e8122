"""kmastat, findleaks, walk and whatis of guests without planted objects, against what the guest's kernel said."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from dmods.errors import UserError
from drgnext.kernel.pages.counters import large_kmalloc
from drgnext.kernel.slabs import leaks
from drgnext.kernel.slabs.leaks import kernel_leaks
from fixtures import answers, kernel
from fixtures.kernel import packages
from tests.kernel import crashed
from tests.kernel.memory import open_kernel

#: What these guests truly leak: (cache, objects with what they keep alive, function).
#: io_wq_create() of 6.1.176 allocates a mask of CPUs, and frees it on errors only (io_uring/io-wq.c: allowed_mask,
#: since "inherit cpuset of cgroup in io worker"). The kernel with PREEMPT_RT is built from the same sources. Our module
#: never reads its pointer to a page pool, so that the compiler leaves it out; since 5.14 the pool's pages point to it.
KNOWN_LEAKS = {
    "5.10": ("kmalloc-2k", 2, "page_pool_create"),
    "6.1": ("kmalloc-8", 1, "io_wq_create"),
    "6.1-arm64": ("kmalloc-128", 1, "io_wq_create"),
    "6.1-rt": ("kmalloc-8", 1, "io_wq_create"),
}


@pytest.fixture(scope="module")
def subject() -> Any:
    return open_kernel(kernel.guest("6.1"))


def test_kmastat_adds_up_to_the_slab_line_of_memstat(subject: Any) -> None:
    kmastat, memstat = crashed.ask(subject, "kmastat"), crashed.ask(subject, "memstat", "-v")
    (slab,) = (row for row in answers.by_name(memstat)["kinds"] if row["name"] == "slab")
    rows = answers.by_name(kmastat)["caches"]
    assert sum(row["bytes"] for row in rows) == slab["bytes"]
    assert kmastat["totals"]["pages"] == slab["pages"]
    (own,) = (row for row in rows if row["cache"] == "dmods_guest")
    assert own["in_use"] == 2000  # KMALLOC_OBJECTS of fixtures/kernel/guest/dmods_guest.c


def test_a_healthy_guest_leaks_only_what_its_kernel_drops(subject: Any) -> None:
    check_healthy(subject, "6.1")


@pytest.mark.parametrize("release", ["6.1", "sid"])
def test_what_a_crash_kernel_had_is_not_missing(release: str) -> None:
    """A dump that a crash kernel takes lacks the 96 MB that it runs in (kernel.RESERVED): 24,576 pages."""
    guest = kernel.guest(release, "null", dump="kexec")
    subject = open_kernel(guest, guest.kdump)
    answer = crashed.ask(subject, "findleaks")
    assert answer["verdict"]["possible"]
    lacking = [int(note.split()[0]) for note in answer["notes"] if "pages of the kernel" in note]
    assert sum(lacking) < 1000
    check_healthy(subject, release)


def check_healthy(subject: Any, release: str) -> None:
    answer = crashed.ask(subject, "findleaks")
    tables = answers.by_name(answer)
    assert {row["what"] for row in tables["by_design"]} <= {
        "ctl_table_header",
        "ctl_table_header of a table with subdirectories",
    }
    known, most, _where = KNOWN_LEAKS.get(release, ("", 0, ""))
    assert [row for row in tables["leaks"] if row["cache"] != known] == []
    assert answer["totals"]["direct_count"] <= 1
    assert answer["totals"]["leaked_count"] <= most


def test_evidence_counts_each_object_once(subject: Any) -> None:
    """Compound pages that only look like blocks of kmalloc are not among them."""
    check_evidence(subject)


def check_evidence(subject: Any) -> None:
    tables = answers.by_name(crashed.ask(subject, "findleaks", "-v"))
    (figures,) = tables["figures"]
    held = sum(row["objects"] for row in tables["evidence"])
    assert held == figures["allocated"] - figures["own"] + figures["large"]
    in_use = sum(row["in_use"] for row in answers.by_name(crashed.ask(subject, "kmastat"))["caches"])
    assert figures["allocated"] == in_use


def test_blocks_of_kmalloc_are_those_that_the_kernel_counts(subject: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """6.1 does not mark them, but counts them as slab."""
    found = kernel_leaks(subject)
    pages = found.figures["large_pages"]
    assert (found.large_doubt, pages > 0) == ("", True)
    assert pages == large_kmalloc(subject.prog, found.slabs.counted.kinds["slab"])
    monkeypatch.setattr(leaks, "large_kmalloc", lambda _prog, _slab: pages - 8)
    _count, doubt = leaks._large(found.slabs, found.figures)
    assert doubt.startswith("kmalloc-large is probable")
    assert doubt.endswith(f"the kernel counts {pages - 8}")


@pytest.mark.parametrize("release", [name for name in packages.TESTED if name != "6.1"])
def test_other_kernels(release: str) -> None:
    subject = open_kernel(kernel.guest(release))
    test_kmastat_adds_up_to_the_slab_line_of_memstat(subject)
    check_healthy(subject, release)
    check_evidence(subject)
    check_slabinfo(subject, release)
    assert crashed.ask(subject, "slabcheck")["totals"]["faults"] == 0


@pytest.mark.thorough("the other kernels' tests say the same")
def test_slabinfo(subject: Any) -> None:
    check_slabinfo(subject, "6.1")


def check_slabinfo(subject: Any, release: str) -> None:
    """/proc/slabinfo counts slabs and their objects. It was read a little before the crash."""
    text = (kernel.guest(release).oracle / "slabinfo").read_text()
    told = {
        name: (int(objects), int(slabs))
        for name, objects, slabs in re.findall(r"^(\S+)\s+\d+\s+(\d+) .* slabdata\s+\d+\s+(\d+)", text, re.M)
    }
    found = {row["cache"]: row for row in answers.by_name(crashed.ask(subject, "kmastat"))["caches"]}
    assert told.keys() <= found.keys()
    same = sum(
        (found[name]["in_use"] + found[name]["free"], found[name]["slabs"]) == counts for name, counts in told.items()
    )
    assert same >= len(told) * 0.85
    objects = sum(count for count, _slabs in told.values())
    assert sum(row["in_use"] + row["free"] for row in found.values()) == pytest.approx(objects, rel=0.02)


@pytest.mark.thorough("the quick tests count the same objects")
def test_walk_and_whatis_know_the_objects_of_the_module(subject: Any) -> None:
    guest = kernel.guest("6.1")
    walked = [row["address"] for row in answers.by_name(crashed.ask(subject, "walk", "slab", "dmods_guest"))["slab"]]
    assert len(walked) == len(set(walked)) == guest.truth["slab_objects"]
    assert hex(guest.truth["slab_object"]) in walked
    free = answers.by_name(crashed.ask(subject, "walk", "freeslab", "dmods_guest"))["freeslab"]
    assert not {row["address"] for row in free} & set(walked)
    said = answers.by_name(crashed.ask(subject, "whatis", hex(guest.truth["slab_object"] + 8)))
    (row,) = said["object"]
    assert (row["object"], row["cache"], row["offset"], row["state"]) == (
        hex(guest.truth["slab_object"]), "dmods_guest", "0x8", "allocated"
    )  # fmt: skip
    assert [holder["where"] for holder in said["pointed_to_by"] if "vmap area" in holder["where"]]


@pytest.mark.thorough("it asks for many addresses")
def test_whatis_of_other_addresses(subject: Any) -> None:
    guest, prog = kernel.guest("6.1"), subject.prog
    init = prog["init_task"].address_of_().value_()
    task = next(iter(crashed.ask(subject, "walk", "task")["tables"][0]["rows"]))
    stack = prog["init_task"].stack.value_()
    page = prog["vmemmap"].value_() + 64 * 4096
    runqueue = prog["runqueues"].address_of_().value_() + prog["__per_cpu_offset"][1].value_()
    expected = {
        init: ("symbol", "init_task"),
        int(task["address"], 16): ("object" if int(task["address"], 16) != init else "symbol", "task"),
        stack + 64: ("stack", "pid 0"),
        guest.truth["vmalloc_address"] + 0x1234: ("vmap", "+0x1234, allocated by "),
        guest.truth["at_null"]: ("symbol", "guest_crash_null"),
        page: ("struct page", "page frame 0x1000"),
        runqueue: ("percpu", "runqueues of CPU 1"),
        guest.truth["kmalloc_address"] + 100: ("large", "kmalloc"),
        0x1234: ("nothing", "not mapped"),
    }
    for address, (kind, words) in expected.items():
        rows = answers.by_name(crashed.ask(subject, "whatis", hex(address)))["whatis"]
        assert any(row["kind"] == kind and words in row["sentence"] for row in rows), (hex(address), rows)


@pytest.mark.thorough("it makes other dumps")
def test_compressed_and_filtered_dumps_say_the_same() -> None:
    guest = kernel.guest("6.1")
    wanted = crashed.ask(open_kernel(guest), "findleaks")["totals"]
    for options in (("-c", "-d", "0"), ("-c", "-d", "31"), ("-E", "-d", "31")):
        subject = open_kernel(guest, guest.dumped(*options))
        answer = crashed.ask(subject, "findleaks")
        assert answer["totals"] == wanted
        if "31" in options:
            assert any("filtered" in note for note in answer["notes"])
        kmastat = crashed.ask(subject, "kmastat")
        assert kmastat["totals"] == crashed.ask(open_kernel(guest), "kmastat")["totals"]


def _end_of_image(guest: kernel.Guest) -> int:
    """Return the physical address where the kernel's own text and data end. It chooses its place as it starts."""
    with open(guest.vmlinux, "rb") as file:
        segments = [one.header for one in ELFFile(file).iter_segments("PT_LOAD")]
    with open(guest.vmcore, "rb") as file:
        said = file.read(1 << 20)
    base, offset = re.search(rb"NUMBER\(phys_base\)=(-?\d+)", said), re.search(rb"KERNELOFFSET=([0-9a-f]+)", said)
    assert base is not None
    assert offset is not None
    return max(one.p_paddr + one.p_memsz for one in segments) + int(base[1]) + int(offset[1], 16)


@pytest.mark.thorough("it copies a dump")
@pytest.mark.parametrize("part", [0.999, 0.99, 0.97, 0.9, 0.8])
def test_a_truncated_dump_says_what_is_missing(tmp_path: Any, part: float) -> None:
    guest = kernel.guest("6.1")
    short = tmp_path / "vmcore"
    size = guest.vmcore.stat().st_size
    with open(guest.vmcore, "rb") as whole, open(short, "wb") as file:
        for _ in range(int(size * part) >> 20):
            file.write(whole.read(1 << 20))
    answer, refused = None, None
    try:
        subject = open_kernel(guest, short)
        answer = crashed.ask(subject, "findleaks", "--top", "3")
    except UserError as error:
        refused = error
    if answer is None:
        assert refused is not None
        assert "truncated" in f"{refused}"
        assert _end_of_image(guest) > short.stat().st_size - (1 << 20)  # the file leaves out holes of less
        return
    assert any("truncated" in note for note in answer["notes"])
    lacking = [note for note in answer["notes"] if "not in the dump" in note or "no struct page" in note]
    assert lacking or not answer["verdict"]["possible"] or part > 0.99
    for command in ("kmastat", "slabcheck"):
        assert any("truncated" in note for note in crashed.ask(subject, command)["notes"])


@pytest.mark.thorough("crash(8) takes ten seconds")
def test_crash_counts_the_same(subject: Any, tmp_path: Any) -> None:
    """crash(8) `kmem -s` counts slabs by its own reading of the lists."""
    import subprocess

    from fixtures import _cache

    guest = kernel.guest("6.1")
    (tmp_path / "input").write_text("kmem -s\nquit\n")
    argv = [_cache.tool("crash"), "-s", "-i", str(tmp_path / "input"), str(guest.vmlinux), str(guest.vmcore)]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    told = {
        name: tuple(map(int, counts))
        for *counts, name in re.findall(r"^[0-9a-f]{16}\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+\d+k\s+(\S+)", said, re.M)
    }
    assert len(told) > 100
    found = {
        row["cache"]: (row["object_size"], row["in_use"], row["in_use"] + row["free"], row["slabs"])
        for row in answers.by_name(crashed.ask(subject, "kmastat"))["caches"]
    }
    different = Counter(
        field for name, counts in told.items() for field, (a, b) in enumerate(zip(counts, found[name])) if a != b
    )
    # crash 8.0.2 counts objects on the lists of CPUs that the panic took offline as allocated.
    assert not different - Counter({1: len(told)})
