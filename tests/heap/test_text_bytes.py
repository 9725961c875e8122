"""The bytes of addresses are no text, and those of texts stay."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Optional

import pytest

from dmods.base.dataclass import replace
from dmods.corefile.target import CoreFile
from dmods.heap.text_bytes import without_addresses
from dmods.heap.texts import Text, text_in
from dmods.target import Target
from tests.corekit import Memory, elf64_core, note, prstatus64

START = 0x10000000
UTF8 = 0x556485DB2060  # "` ۅdU"
LOW = 0x64636261  # "abcd"
TAIL = 0x55AA64650000  # the memory to which a word may lead that has the last letters of a text


def dumped(where: Path, data: bytes, word: int = 8) -> Target:
    """Return a process that has the data at START, and memory at the addresses above."""
    others = [Memory(at & ~0xFFF, bytes(4096)) for at in (LOW, UTF8, TAIL)]
    core = where / "core"
    core.write_bytes(elf64_core([Memory(START, data.ljust(4096, b"\0")), *others], note(1, prstatus64(1, [0] * 27))))
    target = CoreFile(str(core))
    target.arch = replace(target.arch, word=word)
    return target


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (struct.pack("<2Q", UTF8, 0), None),
        (struct.pack("<2Q", UTF8 + 0x1000, 0), "`0ۅdU"),
        (struct.pack("<2Q", LOW, 0), None),
        (struct.pack("<2Q", LOW + 0x1000, 0), "arcd"),
        # A text that fills its array, and an address behind it.
        (b"tenant-7" + struct.pack("<Q", UTF8), None),
        # The last letters of a text may be a low address, or stand where an address was.
        (b"request " + struct.pack("<Q", LOW), "request abcd"),
        (b"tenant-7" + struct.pack("<Q", TAIL + 0x37), "tenant-77"),
        (b"a text of some words\0", "a text of some words"),
        ("wide text".encode("utf-16-le") + b"\0\0", "wide text"),
    ],
)
def test_addresses_are_no_text(tmp_path: Path, data: bytes, text: Optional[str]) -> None:
    found = text_in(without_addresses(dumped(tmp_path, data), START, data))
    assert (found.text if found is not None else None) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"abcd\0", None),
        (b"abcd" * 2 + b"\0", None),
        (b"abcd\1\0\0\0", None),
        (b"abcdefgh\0", "abcdefgh"),
        (b"efghabcd\0", "efghabcd"),
        (b"abcd" * 4 + b"\0", "abcd" * 4),
    ],
)
def test_four_letters_may_be_an_address_of_32_bits(tmp_path: Path, data: bytes, text: Optional[str]) -> None:
    found = text_in(without_addresses(dumped(tmp_path, data, word=4), START, data))
    assert (found.text if found is not None else None) == text


def test_a_text_does_not_begin_within_an_address(tmp_path: Path) -> None:
    data = struct.pack("<Q", UTF8) + b"\x05\0\0\0text\0\0\0\0"
    target = dumped(tmp_path, data)
    seen = {at: text_in(without_addresses(target, START + at, data[at:])) for at in (1, 4, 12)}
    assert seen == {1: None, 4: None, 12: Text("text", "UTF-8")}
    # Where the data ends within an address, the memory behind it says so.
    assert text_in(without_addresses(target, START, data[:6])) is None
    assert text_in(data[:6]) is not None
