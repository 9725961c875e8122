"""Cores made to cost memory or time: each command stays within its bounds, whatever the core says of itself.

docs/FUZZING.md states the bounds. Peak memory is the process's own (ru_maxrss), the interpreter included.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dmods.heap.heap import find_heap
from fixtures import cores, judge
from fixtures.limits import HANG_CPU
from tests.corekit import PT_LOAD, PT_NOTE, Memory, elf64_core, note, prstatus64
from tools.bench.measure import Observed

MEBIBYTE = 1 << 20
PEAK = 600 * MEBIBYTE
SECONDS = 10 * HANG_CPU
COMMANDS = ("findleaks", "owners", "malloc_stats", "heapcheck", "maps", "stacks", "panicinfo")
REGISTERS = [0x5000 + 8 * n for n in range(27)]


def one_thread(count: int = 1) -> bytes:
    return b"".join(note(1, prstatus64(n + 1, REGISTERS)) for n in range(count))


def with_headers(
    rows: Iterator[tuple[int, int, int, int]], notes: bytes = b"", tail: int = 0, xnum: bool = False
) -> bytes:
    """Return a core whose PT_LOADs are (offset, address, filesz, memsz), without checks.

    ``xnum``: their count is in section 0 (PN_XNUM).
    """
    loads = [struct.pack("<IIQQQQQQ", PT_LOAD, 6, offset, at, 0, filesz, size, 1) for offset, at, filesz, size in rows]
    count, table = len(loads) + 1, 128 if xnum else 64
    at = table + 56 * count
    header = b"\x7fELF\2\1\1" + bytes(9)
    sections, small = (64, 0xFFFF) if xnum else (0, count)
    header += struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, table, sections, 0, 64, 56, small, 64 if xnum else 0, xnum, 0)
    header += struct.pack("<44xI16x", count) if xnum else b""
    return (
        header
        + struct.pack("<IIQQQQQQ", PT_NOTE, 0, at, 0, 0, len(notes), 0, 4)
        + b"".join(loads)
        + notes
        + bytes(tail)
    )


def overlapping(path: Path) -> None:
    rows = ((4096 * n, 0x10000 + 8 * n, 1 << 20, 1 << 30) for n in range(60000))
    path.write_bytes(with_headers(rows, one_thread(), 4096))


def sizes_of_2_to_63(path: Path) -> None:
    huge = (1 << 63, (1 << 63) - 1, (1 << 64) - 1)
    rows = ((size % 4096, 0x10000 * n, size, size) for n, size in enumerate(huge * 1000))
    path.write_bytes(with_headers(rows, one_thread(), 4096))


def a_hole_of_a_tebibyte(path: Path) -> None:
    """Write a sparse core. It takes no room on the disk, and reading all of it would take minutes."""
    path.write_bytes(with_headers(iter([(1 << 20, 0x100000, 1 << 40, 1 << 40)]), one_thread()))
    os.truncate(path, (1 << 40) + (1 << 20))


def words_that_lead_in_circles(path: Path) -> None:
    """Write a core in which every word points to a word: itself, its neighbour, or the start of a malloc_state."""
    base, count = 0x10000000, 1 << 20
    words = struct.pack(f"<{count}Q", *(base + 8 * (n ^ (n % 3)) for n in range(count)))
    path.write_bytes(elf64_core([Memory(base, words)], one_thread()))


def threads_that_share_a_stack(path: Path) -> None:
    """Write a core of threads with registers of their own, all on one stack that unwinding cannot leave."""
    base, code, size = 0x7F0000000000, 0x400000, 1 << 20
    frames = b"".join(struct.pack("<QQ", base + at + 16, code + 256) for at in range(0, size // 2, 16))
    notes = []
    for number in range(200_000):
        registers = [base + 8 * n + number * 64 % (size // 4) for n in range(27)]
        registers[4] = registers[19] = base + number * 16 % 4096  # rbp, rsp
        registers[16] = code + number % 4096  # rip
        registers[21] = base + size // 2 + number * 8 % (size // 4)  # fs_base
        notes.append(note(1, prstatus64(number + 1, registers)))
    memory = [Memory(base, frames.ljust(size, b"\0")), Memory(code, b"\x90" * 8192, flags=5)]
    path.write_bytes(elf64_core(memory, b"".join(notes)))


def a_million_files(path: Path) -> None:
    count, base = 1_000_000, 0x10000
    ranges = b"".join(struct.pack("<QQQ", base + 8192 * n, base + 8192 * n + 4096, n) for n in range(count))
    names = b"".join(b"/lib/%d\0" % n for n in range(count))
    listed = note(0x46494C45, struct.pack("<QQ", count, 4096) + ranges + names)
    path.write_bytes(elf64_core([Memory(0x5000, bytes(4096))], one_thread() + listed))


def a_million_segments(path: Path) -> None:
    count = 1_000_000
    rows = ((4096, 0x10000 + 8192 * n, 4096, 4096) for n in range(count))
    path.write_bytes(with_headers(rows, one_thread(), xnum=True))


def many_modules(path: Path) -> None:
    """Write a core in which every mapping is a file that begins with one ELF header, with as many headers as may be."""
    count, base = 50_000, 0x10000
    elf_header = (
        b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 0xFFFE, 0, 0, 0)
    )
    load = struct.pack("<IIQQQQQQ", PT_LOAD, 5, 0, 0, 0, 4096, 4096, 4096)
    header = (elf_header + load * 72).ljust(4096, b"\0")
    starts = [base + 8192 * n for n in range(count)]
    listed = struct.pack("<QQ", count, 4096) + b"".join(struct.pack("<QQQ", at, at + 4096, 0) for at in starts)
    listed += b"".join(b"/lib/%d\0" % n for n in range(count))
    notes = one_thread() + note(0x46494C45, listed)
    at = 128 + 56 * (count + 1) + len(notes)
    path.write_bytes(with_headers(((at, start, 4096, 4096) for start in starts), notes, xnum=True) + header)


_LONG = pytest.mark.thorough("it takes many seconds")
MILLIONS = (
    pytest.param(a_million_files, "findleaks", marks=_LONG),
    pytest.param(a_million_segments, "findleaks", marks=_LONG),
    pytest.param(a_million_segments, "maps -v", marks=_LONG),
)
CRAFTED = (
    pytest.param(overlapping, marks=_LONG),
    sizes_of_2_to_63,
    a_hole_of_a_tebibyte,
    pytest.param(words_that_lead_in_circles, marks=_LONG),
    pytest.param(threads_that_share_a_stack, marks=_LONG),
    pytest.param(many_modules, marks=_LONG),
)


def measured(argv: list[str]) -> tuple[int, int, float, str]:
    """Return the exit status, peak resident bytes, CPU seconds and stderr."""
    code, sample, said = Observed(argv).end()
    return code, sample.rss, sample.cpu, said


def bounded(path: Path, *commands: str) -> None:
    assert commands
    for command in commands:
        code, peak, seconds, said = measured([sys.executable, "-m", "dmods", *command.split(), str(path)])
        assert code in (0, 1, 4), f"{command}: {said[-2000:]}"
        assert "Traceback" not in said, f"{command}: {said[-2000:]}"
        assert peak < PEAK, f"{command} took {peak / MEBIBYTE:.0f} MiB"
        assert seconds < SECONDS, f"{command} took {seconds:.0f} s"


@pytest.mark.quick("sizes_of_2_to_63")
@pytest.mark.parametrize("craft", CRAFTED, ids=lambda craft: craft.__name__)
def test_a_crafted_core_is_bounded(craft: Callable[[Path], None], tmp_path: Path) -> None:
    craft(tmp_path / "core")
    bounded(tmp_path / "core", *COMMANDS)


@pytest.mark.parametrize(("craft", "command"), MILLIONS, ids=lambda one: getattr(one, "__name__", one))
def test_a_million_mappings(craft: Callable[[Path], None], command: str, tmp_path: Path) -> None:
    """Some programs really have that many. The other commands look at fewer of them."""
    craft(tmp_path / "core")
    bounded(tmp_path / "core", command)


def test_symbol_tables_of_lies(tmp_path: Path) -> None:
    """The program's section headers claim tables of 2^40 symbols, and tables that are one another."""
    made = cores.take("sizes")
    program = bytearray(made.executable.read_bytes())
    table, count = struct.unpack_from("<Q", program, 40)[0], struct.unpack_from("<H", program, 60)[0]
    for number in range(count):
        at = table + 64 * number
        if struct.unpack_from("<I", program, at + 4)[0] in (2, 3, 11):  # SHT_SYMTAB, SHT_STRTAB, SHT_DYNSYM
            struct.pack_into("<Q", program, at + 32, 24 << 40)  # sh_size
            struct.pack_into("<I", program, at + 40, number)  # sh_link: itself
    (tmp_path / "program").write_bytes(program)
    for command in ("stacks", "findleaks", "panicinfo"):
        argv = [sys.executable, "-m", "dmods", command, str(made.core), "--exe", str(tmp_path / "program")]
        code, peak, seconds, said = measured(argv)
        assert code == 0, f"{command}: {said[-2000:]}"
        assert peak < PEAK
        assert seconds < SECONDS


@pytest.mark.parametrize("mode", ["cyclic-tcache", "cyclic-fastbin", "wild-bins"])
def test_cycles_in_the_heap_end(mode: str) -> None:
    made = cores.take("corrupt", mode=mode)
    code, peak, seconds, said = measured([sys.executable, "-m", "dmods", "heapcheck", str(made.core)])
    assert code == 0, said
    assert peak < PEAK
    assert seconds < SECONDS
    assert find_heap(judge.open_core(made)).found
