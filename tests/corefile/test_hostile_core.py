"""Files that are no core, and damaged cores: a clear line or a note, and the rest of the answer."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import random
import struct
import time
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile, find_executable
from dmods.errors import FaultError, UserError
from dmods.heap.mapping_kinds import classify_mappings
from dmods.modules import elf
from dmods.process.addresses import describe_code
from fixtures.limits import HANG_CPU
from tests.corekit import Memory, compile_c, elf64_core, file_note, kernel_core, note, prstatus64

NO_REGISTERS = prstatus64(1, [0] * 27)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a whole core of a program that only dies."""
    where = tmp_path_factory.mktemp("small")
    (where / "die.c").write_text("#include <stdlib.h>\nint main(void) { abort(); }\n")
    return kernel_core(compile_c(where / "die.c", where / "die"), where).read_bytes()


def ask_everything(path: Path) -> CoreFile:
    """Ask the core everything that commands ask.

    UserError means that it is no core; any other exception is a defect.
    """
    core = CoreFile(str(path))
    core.image()
    for thread in core.threads()[:4]:
        describe_code(core, thread.registers[core.arch.pc])
    for mapping in core.mappings()[:4]:
        with contextlib.suppress(FaultError):
            assert len(core.read(mapping.start, min(16, mapping.size))) == min(16, mapping.size)
    ends = [0, *(mapping.end for mapping in core.mappings())]
    starts = [*(mapping.start for mapping in core.mappings()), 1 << 64]
    assert all(end <= start for end, start in zip(ends, starts)), "mappings overlap or are not sorted"
    assert sum(m.size for m, _kind in classify_mappings(core)) == sum(m.size for m in core.mappings())
    core.lookup("main")
    find_executable(str(path))
    return core


@pytest.mark.parametrize(
    ("data", "what", "how"),
    [
        (b"", "is empty", "ulimit -c"),
        (b"hello, world\n" * 9, "is not ELF: not a core file", "core file"),
        (bytes(100_000), "begins with 4096 zero bytes", "the disk was full"),
        (bytes(3), "begins with 3 zero bytes", "the disk was full"),
        (gzip.compress(b"x", mtime=0), "compressed (gzip), and what is in it is no dump", "gzip -dc"),
        (lzma.compress(b"x"), "compressed (xz), and what is in it is no dump", "xz -dc"),
        (bz2.compress(b"x"), "compressed (bzip2), and what is in it is no dump", "bzip2 -dc"),
        (b"\x28\xb5\x2f\xfd....", "compressed (zstd), and what is in it cannot be unpacked", "take it again"),
        (b"\x04\x22\x4d\x18....", "compressed (lz4), and what is in it cannot be unpacked", "take it again"),
        (b"\x7fELF\2\1\1" + bytes(20), "ends inside its ELF header", "again"),
        (b"\x7fELF", "ends inside its ELF header", "again"),
        (b"\x7fELF\7\7\1" + bytes(80), "without a valid word size", "core file"),
        (elf64_core([], b"", machine=21), "ppc64", "x86_64"),
        (elf64_core([], b"", machine=0xBEEF), "48879", "x86_64"),
        (elf64_core([], note(0, b"OSRELEASE=6.1.0\n", b"VMCOREINFO")), "kernel dump", "drgn -c"),
        (b"KDUMP   " + bytes(100), "kernel dump", "drgn -c"),
    ],
)
def test_what_is_no_core_is_said_in_two_lines(tmp_path: Path, data: bytes, what: str, how: str) -> None:
    path = tmp_path / "core"
    path.write_bytes(data)
    with pytest.raises(UserError) as caught:
        CoreFile(str(path))
    assert what in caught.value.what
    assert how in caught.value.how
    assert "\n" not in caught.value.what + caught.value.how
    assert str(path) in caught.value.what


def test_other_things_than_files(tmp_path: Path) -> None:
    for path, why in (
        (str(tmp_path), "is a folder"),
        (str(tmp_path / "none"), "No such file"),
        ("/dev/null", "not a regular file"),
        ("/bin/true", "not a core"),
        ("a\0b", "cannot open"),
    ):
        with pytest.raises(UserError) as caught:
            CoreFile(path)
        assert why in caught.value.what


def test_truncated_at_any_byte(small: bytes, tmp_path: Path) -> None:
    """The core is cut at every boundary, and at places between: UserError while there is no header, else notes."""
    header = elf.parse(lambda offset, size: small[offset : offset + size], "core")
    table = 64 + 56 * len(header.segments)
    lengths = {0, 1, 4, 5, 6, 16, 63, 64, 65, 64 + 56, 64 + 57, table - 1, table, table + 1, len(small) - 1}
    for segment in header.segments:
        lengths |= {segment.offset, segment.offset + 1, segment.offset + segment.filesz // 2}
    notes = next(s for s in header.segments if s.type == elf.PT_NOTE)
    lengths |= set(range(notes.offset, notes.offset + notes.filesz, 97))
    path = tmp_path / "core"
    for length in sorted(lengths):
        path.write_bytes(small[:length])
        if length < 64:
            with pytest.raises(UserError):
                ask_everything(path)
            continue
        core = ask_everything(path)
        assert core.notes, f"nothing said of a core cut at {length}"
        promised = sum(s.filesz for s in header.loads())
        missing = promised - sum(mapping.dumped for mapping in core.mappings())
        if length >= table:
            assert missing > 0
            assert any(f"truncated: {missing} bytes of" in text for text in core.notes)


def test_random_damage(small: bytes, tmp_path: Path) -> None:
    """A few hundred damaged cores, mostly in headers and notes: no exception, and no hang."""
    dice = random.Random(1603)
    path = tmp_path / "core"
    for _ in range(400):
        data = bytearray(small[: dice.choice([len(small), len(small), dice.randrange(20_000)])])
        for _ in range(dice.choice([1, 3, 30])):
            if data:
                at = dice.randrange(min(len(data), dice.choice([64, 2_000, 8_000, len(small)])))
                width = min(dice.choice([1, 1, 4, 8]), len(data) - at)
                data[at : at + width] = bytes([dice.choice([0, 0x7F, 0x80, 0xFF, dice.randrange(256)])]) * width
        path.write_bytes(data)
        started = time.process_time()
        try:
            ask_everything(path)
        except UserError:
            assert bytes(data[:64]) != small[:64] or len(data) < 64, "the header was whole"
        assert time.process_time() - started < HANG_CPU


def test_segments_that_overlap_or_leave_the_address_space(tmp_path: Path) -> None:
    memory = [
        Memory(0x2000, b"b" * 0x1000),
        Memory(0x1000, b"a" * 0x1800),
        Memory(2**64 - 0x500000, b"z" * 0x2000, size=0x600000),
    ]
    (tmp_path / "core").write_bytes(elf64_core(memory, note(1, NO_REGISTERS)))
    core = ask_everything(tmp_path / "core")
    assert core.read(0x27FF, 2) == b"ab"
    assert core.read(2**64 - 0x500000, 4) == b"zzzz"
    assert core.mappings()[-1].end < 2**64
    assert any("overlap" in text for text in core.notes)


@pytest.mark.parametrize(
    "files",
    [
        struct.pack("<QQ", 2**60, 4096),
        struct.pack("<QQ", 2**64 - 1, 2**64 - 1),
        struct.pack("<QQQQQ", 1, 2**63, 0x1000, 0x2000, 2**63) + b"/x\0",
        b"\1",
        file_note([(0x1000, 0x3000, 0, "/none"), (0x2000, 0x2800, 0, "/other"), (0x9000, 0x8000, 0, "/backwards")]),
        file_note([(0x1000, 0x3000, 0, "\x1b[31m\n/none")]),
    ],
)
def test_lists_of_files_that_lie(tmp_path: Path, files: bytes) -> None:
    notes = note(1, NO_REGISTERS) + note(0x46494C45, files)
    (tmp_path / "core").write_bytes(elf64_core([Memory(0x1000, b"a" * 0x2000)], notes))
    core = ask_everything(tmp_path / "core")
    assert core.read(0x2FFE, 2) == b"aa"
    assert len(core.threads()) == 1


def test_notes_that_lie(tmp_path: Path) -> None:
    for notes in (
        struct.pack("<III", 2**32 - 1, 2**32 - 1, 1) + b"CORE",
        note(1, NO_REGISTERS[:200]),
        note(0x53494749, b"\1") + note(6, b"odd") + note(3, b"") + note(0x200, bytes(16)) + note(0x401, b""),
        note(6, struct.pack("<QQ", 3, 2**64 - 8) + struct.pack("<QQ", 5, 2**64 - 1) + struct.pack("<QQ", 33, 0x1000)),
    ):
        (tmp_path / "core").write_bytes(elf64_core([Memory(0x1000, b"\x7fELF\2\1\1" + bytes(99))], notes))
        core = ask_everything(tmp_path / "core")
        assert any("no thread" in text for text in core.notes)


def test_many_threads_cost_little(tmp_path: Path) -> None:
    notes = b"".join(note(1, prstatus64(tid, [tid] * 27)) for tid in range(1, 20_001))
    (tmp_path / "core").write_bytes(elf64_core([Memory(0x1000, b"x")], notes))
    started = time.process_time()
    core = CoreFile(str(tmp_path / "core"))
    assert [thread.tid for thread in core.threads()] == list(range(1, 20_001))
    assert time.process_time() - started < HANG_CPU
    assert core.threads()[-1].registers["rip"] == 20_000
