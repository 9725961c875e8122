"""A heap in memory that has a name: huge pages, names set by prctl(2), memory files.

The kernel lists huge pages and memory files among the mapped files of a core. Where the machine has huge pages, the
program gets real ones. Everywhere, the list of a real core is changed: the mappings in which the program said that its
blocks lie get such a name.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import ProcessHeap, find_heap
from fixtures import answers, cores, jemallocs, judge, mimallocs, tcmallocs
from fixtures.cores import CoreSet
from fixtures.truth import Truth
from tests.corekit import PT_LOAD, PT_NOTE, file_note, note

HUGE = "/anon_hugepage (deleted)"
NAMES = (HUGE, "[anon:glibc: malloc]", "/memfd:heap (deleted)", "/dev/hugepages/libhugetlbfs.tmp.x1 (deleted)")
NT_FILE = 0x46494C45
ON_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"}
_PAGE = 4096


def renamed(made: CoreSet, name: str, where: Path) -> Path:
    """Return a copy of the core in which every mapping with a block of the program has that name."""
    core = where / "core"
    subprocess.run(["cp", "--sparse=always", "--reflink=auto", str(made.core), str(core)], check=True)
    head = bytearray(core.read_bytes()[: 1 << 20])
    table, size, count = struct.unpack_from("<Q14xHH", head, 32)
    segments = [struct.unpack_from("<IIQQQQQQ", head, table + i * size) for i in range(count)]
    place, notes = next((i, each) for i, each in enumerate(segments) if each[0] == PT_NOTE)
    with open(core, "rb") as file:
        file.seek(notes[2])
        found = list(_notes(file.read(notes[5])))
    files = next(_files(desc) for kind, _name, desc in found if kind == NT_FILE)
    blocks = sorted(made.truth.blocks)
    heap = [
        (each[3], each[3] + each[6], 0, name)
        for each in segments
        if each[0] == PT_LOAD
        and each[1] & 2
        and not any(start < each[3] + each[6] and each[3] < end for start, end, *_ in files)
        and any(each[3] <= block < each[3] + each[6] for block in blocks)
    ]
    assert heap, "no mapping holds a block that the program told of"
    entries = file_note(sorted([*files, *heap]))
    new = b"".join(note(kind, entries if kind == NT_FILE else desc, owner) for kind, owner, desc in found)
    end = core.stat().st_size
    with open(core, "r+b") as file:
        file.seek(end)
        file.write(new)
        file.seek(table + place * size)
        file.write(struct.pack("<IIQQQQQQ", PT_NOTE, 0, end, 0, 0, len(new), 0, 4))
    return core


def _notes(data: bytes) -> list[tuple[int, bytes, bytes]]:
    found, at = [], 0
    while at + 12 <= len(data):
        names, size, kind = struct.unpack_from("<III", data, at)
        at += 12
        owner = data[at : at + names].rstrip(b"\0")
        at += -(-names // 4) * 4
        found.append((kind, owner, data[at : at + size]))
        at += -(-size // 4) * 4
    return found


def _files(desc: bytes) -> list[tuple[int, int, int, str]]:
    count, page = struct.unpack_from("<QQ", desc)
    assert page == _PAGE
    ranges = list(struct.iter_unpack("<QQQ", desc[16 : 16 + 24 * count]))
    paths = desc[16 + 24 * count :].split(b"\0")
    return [(start, end, offset, path.decode()) for (start, end, offset), path in zip(ranges, paths)]


def right(core: Path, truth: Truth, excused: frozenset[str] = frozenset()) -> ProcessHeap:
    heap = find_heap(CoreFile(str(core)))
    problems = judge.problems(heap, truth, excused)
    assert not problems, f"{len(problems)} problems, among them:\n" + "\n".join(problems[:10])
    return heap


@pytest.mark.quick(
    "/anon_hugepage (deleted)-arenas",
    "[anon:glibc: malloc]-freed",
    "/memfd:heap (deleted)-freed",
    "/dev/hugepages/libhugetlbfs.tmp.x1 (deleted)-freed",
)
@pytest.mark.parametrize("program", ["freed", "arenas"])
@pytest.mark.parametrize("name", NAMES)
def test_glibc_in_named_memory(name: str, program: str, tmp_path: Path) -> None:
    """With hugetlb=2 malloc never takes the break, whether there are huge pages or not."""
    made = cores.take(program, env=ON_HUGE_PAGES)
    heap = right(renamed(made, name, tmp_path), made.truth)
    assert not [one for one in heap.notes if "NT_FILE" in one]


def test_glibc_on_the_break_with_a_name(tmp_path: Path) -> None:
    made = cores.take("graph")
    right(renamed(made, NAMES[1], tmp_path), made.truth)


@pytest.mark.quick(
    "jemalloc-/memfd:heap (deleted)", "tcmalloc-/anon_hugepage (deleted)", "mimalloc-/memfd:heap (deleted)"
)
@pytest.mark.parametrize("name", [HUGE, NAMES[2]])
@pytest.mark.parametrize("allocator", ["jemalloc", "tcmalloc", "mimalloc"])
def test_other_allocators_in_named_memory(allocator: str, name: str, tmp_path: Path) -> None:
    made = {
        "jemalloc": lambda: jemallocs.take("graph"),
        "tcmalloc": lambda: tcmallocs.take("graph"),
        "mimalloc": lambda: mimallocs.take("graph", next(iter(mimallocs.PACKAGES))),
    }[allocator]()
    right(renamed(made, name, tmp_path), made.truth)


def test_a_heap_on_transparent_huge_pages() -> None:
    made = cores.take("freed", env={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
    right(made.core, made.truth)


@pytest.mark.quick("freed-gcore")
@pytest.mark.parametrize("how", ["kernel", "gcore"])
@pytest.mark.parametrize("program", ["freed", "arenas"])
def test_a_heap_on_real_huge_pages(program: str, how: str) -> None:
    """On a machine without huge pages the program gets others: then this is a test of mapped main arenas only."""
    made = cores.take(program, how, env={**ON_HUGE_PAGES, "DMODS_HUGE": str(_free_huge_pages() >= 32)})
    right(made.core, made.truth)


def _free_huge_pages() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("HugePages_Free:")), 0)


def test_maps_and_the_verdict_know_the_heap(tmp_path: Path) -> None:
    made = cores.take("freed", env=ON_HUGE_PAGES)
    core = renamed(made, HUGE, tmp_path)
    kinds = {row["kind"] for row in answers.by_name(answers.typed("maps", core, "-v"))["mappings"]}
    assert "heap" in kinds
    totals = answers.typed("findleaks", core)["totals"]
    assert totals["leaked_count"] == len(made.truth.leaked)
