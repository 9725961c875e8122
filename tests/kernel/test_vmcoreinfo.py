"""Kernel dumps with false notes: VMCOREINFO that is wrong, contradicts itself or is missing, and notes without end.

drgn opens each, and every command for kernels runs on it within bounds of memory and time (tests/fuzz/vmcores.py). The
result is an answer with notes, or two lines that say why there is none.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmods.modules import elf
from drgnext.kernel.dump.vmcoreinfo import numbers
from fixtures import kernel
from tests import quick
from tests.corekit import elf64_core, note
from tests.fuzz import vmcores
from tools.bench.measure import Observed

MEBIBYTE = 1 << 20
_VALUES = re.compile(rb"(?<=\)=)\S+")
# The names that drgn itself looks up. It refuses a dump that lacks these, or where a number has more than 64 bits.
_LEAST = (
    *(b"OSRELEASE=", b"BUILD-ID=", b"PAGESIZE=", b"KERNELOFFSET=", b"SYMBOL(swapper_pg_dir)", b"SYMBOL(mem_section)"),
    *(b"LENGTH(mem_section)", b"NUMBER(phys_base)", b"NUMBER(pgtable_l5_enabled)"),
    *(b"NUMBER(SECTION_SIZE_BITS)", b"NUMBER(MAX_PHYSMEM_BITS)"),
)


def each(kind: bytes, *values: bytes) -> Callable[[bytes], bytes]:
    """Return a function that gives the lines of the kind these values in turn. Numbers that drgn uses stay."""

    def changed(text: bytes) -> bytes:
        lines = text.split(b"\n")
        spared = _LEAST if kind == b"NUMBER" else ()
        chosen = [n for n, line in enumerate(lines) if line.startswith(kind) and not line.startswith(spared)]
        for place, n in enumerate(chosen):
            lines[n] = lines[n].partition(b"=")[0] + b"=" + values[place % len(values)]
        return b"\n".join(lines)

    return changed


def only_the_least(text: bytes) -> bytes:
    return b"".join(line + b"\n" for line in text.split(b"\n") if line.startswith(_LEAST))


def twice(text: bytes) -> bytes:
    return text + b"\n".join(line for line in _VALUES.sub(b"12345", text).split(b"\n") if not line.startswith(_LEAST))


# The cases that drgn itself does not refuse.
OURS = ("numbers below 2^64", "negative numbers", "contradictions", "sizes of 0", "only the least")

LIES: dict[str, Callable[[bytes], bytes]] = {
    "numbers below 2^64": each(b"NUMBER", b"18446744073709551615", b"9223372036854775808"),
    "numbers of 2^64": each(b"NUMBER", b"18446744073709551616"),
    "negative numbers": each(b"NUMBER", b"-9223372036854775808", b"-1"),
    "numbers without end": each(b"NUMBER", b"9" * 10000, b"0x" + b"f" * 10000),
    "no numbers": each(b"NUMBER", b"", b"many", b"\xff\xfe"),
    "lengths of 2^63": each(b"LENGTH", b"9223372036854775808", b"0"),
    "sizes of 0": each(b"SIZE", b"0", b"18446744073709551615"),
    "symbols nowhere": each(b"SYMBOL", b"ffffffffffffffff", b"0", b"12345"),
    "only the least": only_the_least,
    "contradictions": twice,
    "pages of 64 KB": each(b"PAGESIZE", b"65536"),
    "pages of 3 bytes": each(b"PAGESIZE", b"3"),
    "pages of nothing": each(b"PAGESIZE", b"0"),
    "another place": each(b"KERNELOFFSET", b"ffffffff80000000"),
    "all numbers of 2^64": lambda text: _VALUES.sub(b"18446744073709551616", text),
    "no text": lambda text: bytes(len(text)),
    "megabytes": lambda text: text + b"NUMBER(x)=1\n" * (1 << 19),
}


def vmcoreinfo(path: Path) -> bytes:
    with path.open("rb") as file:

        def read(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        segment = next(s for s in elf.parse(read, "the dump").segments if s.type == elf.PT_NOTE)
        return read(segment.offset, segment.filesz)


def crafted(work: Path, notes: Callable[[list[tuple[bytes, int, bytes]]], bytes], claimed: int = 0) -> Path:
    """Return a copy of the guest's dump with other notes, whose header claims ``claimed`` bytes."""
    guest = kernel.guest(*vmcores.GUEST)
    copy = work / "vmcore"
    subprocess.run(["cp", "--sparse=always", str(guest.vmcore), str(copy)], check=True)
    made = notes(list(elf.read_notes(vmcoreinfo(guest.vmcore), True)))
    with copy.open("r+b") as file:
        end = (file.seek(0, 2) + 7) & -8
        file.seek(end)
        file.write(made)
        file.seek(32)
        table = struct.unpack("<Q", file.read(8))[0]
        file.seek(table)
        assert struct.unpack("<I", file.read(4))[0] == elf.PT_NOTE
        file.seek(table + 8)
        file.write(struct.pack("<Q", end))
        file.seek(table + 32)
        file.write(struct.pack("<QQ", claimed or len(made), claimed or len(made)))
    return copy


@pytest.mark.quick("lengths of 2^63")
@pytest.mark.parametrize("lie", quick.only(("lengths of 2^63", "no text", "negative numbers"), LIES))
def test_a_vmcoreinfo_of_lies(lie: str, tmp_path: Path) -> None:
    def notes(all_notes: list[tuple[bytes, int, bytes]]) -> bytes:
        changed = ((n, k, LIES[lie](d) if n == b"VMCOREINFO" else d) for n, k, d in all_notes)
        return b"".join(note(k, d, n) for n, k, d in changed)

    said, wrong = vmcores.judge(crafted(tmp_path, notes))
    assert said
    assert not wrong, "\n".join(wrong)
    assert lie not in OURS or len(said) > 1, said


@pytest.mark.parametrize("claimed", quick.only([1 << 40], [0, 1 << 40, (1 << 64) - 8]))
def test_notes_without_end(claimed: int, tmp_path: Path) -> None:
    """A note of 128 MiB comes first. A note behind the others claims 4 GiB, and a segment claims more."""

    def notes(all_notes: list[tuple[bytes, int, bytes]]) -> bytes:
        last = struct.pack("<III", 5, 0xFFFFFFFF, 1) + b"CORE\0\0\0\0"
        return note(7, bytes(128 * MEBIBYTE)) + b"".join(note(k, d, n) for n, k, d in all_notes) + last

    path = crafted(tmp_path, notes, claimed)
    said, wrong = vmcores.judge(path)
    assert said
    assert not wrong, "\n".join(wrong)


@pytest.mark.quick("maps")
@pytest.mark.parametrize("command", ["owners", "maps"])
def test_the_standalone_form_says_that_it_is_a_kernels(command: str, tmp_path: Path) -> None:
    notes = note(7, bytes(255 * MEBIBYTE)) + note(0, b"NUMBER(x)=1\n" * 64, b"VMCOREINFO")
    path = tmp_path / "vmcore"
    path.write_bytes(elf64_core([], notes))
    code, sample, said = Observed([sys.executable, "-m", "dmods", command, str(path)]).end()
    assert code == 1
    assert "is a kernel dump" in said
    assert len(said.strip().splitlines()) == 2
    assert sample.rss < 600 * MEBIBYTE
    assert sample.cpu < 20


class Said:
    """The value that drgn gives for a string."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def string_(self) -> bytes:
        return self._text


def test_numbers_are_the_kernels() -> None:
    text = b"NUMBER(a)=-1\nNUMBER(b)=0x1f\nNUMBER(c)=" + b"9" * 5000 + b"\nNUMBER(\xff)=1\nNUMBER(d)=7\n"
    prog: Any = {"VMCOREINFO": Said(text)}
    assert numbers(prog) == {"a": -1, "b": 31, "d": 7}
    assert numbers({}) == {}
