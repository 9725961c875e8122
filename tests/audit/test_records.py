"""Records, compared with the program's own list of its blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from fixtures.limits import CLOCK_SLACK
from tests.audit.auditor import LIBRARY, Block, Tables, built, compiled, environment, size_of, waiting


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("ledger.c", tmp_path_factory.mktemp("ledger") / "ledger")


OUTER = 4  # frames outside descend: step, worker, and two of the C library's thread


def compare(program: Path, books: list[str], blocks: list[Block], frames: int = 64) -> int:
    """Check that every block in the books has its record, and `site` allocated nothing else. Return their count."""
    site, descend = (int(word, 16) for word in books[0].split()[1:])
    sizes = {site: size_of(program, "site"), descend: size_of(program, "descend")}

    def within(pc: int, function: int) -> bool:
        return 0 < pc - function <= sizes[function]

    ours = {block.address: block for block in blocks if block.stack and within(block.stack[0], site)}
    entries = [line.split() for line in books[1:-1]]
    assert {int(entry[0], 16) for entry in entries} == set(ours)
    for address, *numbers in entries:
        size, tid, _way, depth, before, after = (int(number) for number in numbers)
        block = ours[int(address, 16)]
        assert (block.size, block.tid) == (size, tid)
        assert before - CLOCK_SLACK <= block.time <= after + CLOCK_SLACK
        path = [within(pc, descend) for pc in block.stack[1:]]
        assert path[: depth + 1] == [True] * min(depth + 1, frames - 1)
        assert not any(path[depth + 1 :])
        assert block.truncated == (frames < depth + 2 + OUTER)
    return len(entries)


@pytest.mark.quick("audit-8-64", "audit,guards-4-64")
@pytest.mark.parametrize(
    ("words", "threads", "frames"),
    [
        ("audit", 8, 64),
        ("audit=40", 3, 40),
        ("audit=15", 4, 15),
        ("audit=3", 2, 3),
        ("audit,guards", 4, 64),
        ("audit,log=100,contents=32", 4, 64),
    ],
)
def test_threads(ledger: Path, tmp_path: Path, words: str, threads: int, frames: int) -> None:
    told = tmp_path / "told"
    with waiting([ledger, told, threads, 20000, 0], told, environment(words)) as (pid, books):
        tables = Tables(pid)
        assert compare(ledger, books, tables.blocks(), frames) > 100 * threads
        assert (tables.frames, tables.state, tables.own_pid) == (frames, 2, pid)
        bytes_mapped, lost_records, lost_stacks, _truncated, unknown_frees = tables.figures[:5]
        assert (lost_records, lost_stacks, unknown_frees) == (0, 0, 0)
        assert bytes_mapped >= sum(end - start for start, end, kind in tables.ranges() if kind in ("records", "stacks"))


def test_fork_storm(ledger: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    with waiting([ledger, told, 4, 5000, 50], told, environment("audit")) as (pid, books):
        tables = Tables(pid)
        assert tables.own_pid == pid
        assert tables.figures[5] == 1  # forks
        own = {int(line.split()[0], 16) for line in books[1:-1]}
        # Only the blocks of its own thread are compared. Those of other threads are as they were at the fork.
        assert compare(ledger, books, [block for block in tables.blocks() if block.address in own]) > 100
        assert any(block.pid == pid for block in tables.blocks() if block.address in own)


@pytest.mark.thorough("the test of the unwinder does without it, too")
def test_glibc_without_dl_find_object(ledger: Path, tmp_path: Path) -> None:
    """The auditor works as on glibc before 2.35."""
    library = built(tmp_path / "old.so", "-DDMODS_AUDIT_OLD_GLIBC")
    told = tmp_path / "told"
    with waiting([ledger, told, 3, 5000, 0], told, environment("audit", library)) as (pid, books):
        assert compare(ledger, books, Tables(pid, library).blocks()) > 300


def test_the_library_exports_only_its_own(tmp_path: Path) -> None:
    """Any other exported function would replace one of the program."""
    with open(LIBRARY, "rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        names = {s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["bind"] != "STB_LOCAL"}
    operators = {name for name in names if name.startswith(("_Znw", "_Zna", "_Zdl", "_Zda"))}
    assert len(operators) == 20
    assert names - operators == {
        *("malloc", "free", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "posix_memalign"),
        *("valloc", "pvalloc", "malloc_usable_size", "free_sized", "free_aligned_sized", "dmods_audit_root"),
        *("mmap", "mmap64", "munmap", "mremap", "brk", "sbrk", "shmat", "shmdt"),
        *("_exit", "_Exit", "sigaction", "signal"),
    }
