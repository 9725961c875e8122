"""The guards in a core, compared with what the program knows that it has written."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap import guards
from dmods.heap.guards import AFTER, INSIDE, Change, Verification
from dmods.machine.installed import preloadable
from dmods.records.model import Record, Transaction
from dmods.records.sources import allocation_records
from tests.audit.auditor import LIBRARY, environment, size_of
from tests.corekit import HERE, compile_c, kernel_core

SOURCE = HERE / "guards.c"
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
ALLOCATORS = ("", "libjemalloc.so.2", "libtcmalloc_minimal.so.4")
REDZONE, FREED = 0xBB, b"\xef\xbe\xad\xde"


class Told(NamedTuple):
    """A block and what the program did with it."""

    state: str
    address: int
    requested: int
    offset: int
    written: bytes

    @property
    def change(self) -> Change:
        """Return the bytes that differ from the old ones. A first byte may be equal."""
        size, fill = len(self.written), FREED if self.state == "freed" else bytes([REDZONE]) * 4
        before = bytes(fill[at % 4] for at in range(self.offset, self.offset + size))
        same = int(before[0] == self.written[0])
        return Change(self.offset + same, before[same:], self.written[same:])


class Taken(NamedTuple):
    target: CoreFile
    site: tuple[int, int]
    told: list[Told]


def taken(folder: Path, words: str, allocator: str = "", count: int = 1000, *more: str) -> Taken:
    program = compile_c(SOURCE, folder / "guards", "-O2", "-fno-builtin")
    work = folder / "work"
    work.mkdir()
    variables = environment(words)
    if allocator:
        assert (LIBRARIES / allocator).exists(), "scripts/setup installs it"
        variables["LD_PRELOAD"] = f"{preloadable(str(LIBRARY))} {LIBRARIES / allocator}"
    core = kernel_core(program, work, str(folder / "told"), str(count), *more, env=variables)
    first, *rows = (line.split() for line in (folder / "told").read_text().splitlines())
    told = [
        Told(state, int(address, 16), int(size), int(offset), bytes.fromhex(text.strip("-")))
        for state, address, size, offset, text in rows
    ]
    start = int(first[1], 16)
    return Taken(CoreFile(str(core)), (start, start + size_of(program, "site")), told)


def verified(target: CoreFile) -> Verification:
    found = guards.verify(target)
    assert found is not None
    assert guards.verify(target) is found  # computed once
    return found


@pytest.mark.quick(
    "-audit,guards", "libjemalloc.so.2-audit,guards", "libtcmalloc_minimal.so.4-audit=20,log=100000,guards"
)
@pytest.mark.parametrize("words", ["audit,guards", "audit=20,log=100000,guards"])
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_every_write_is_found_and_nothing_else(tmp_path: Path, allocator: str, words: str) -> None:
    target, (start, end), told = taken(tmp_path, words, allocator)
    found = verified(target)
    expected = {one.address: one for one in told if one.state == "live" and one.written}
    live = [finding for finding in found.blocks if finding.side == AFTER]
    assert len(expected) == 36
    assert {finding.address for finding in live} == set(expected)
    for finding in live:
        one = expected[finding.address]
        assert (finding.requested, list(finding.changes)) == (one.requested, [one.change])
        assert isinstance(finding.entry, Record)
        assert start < finding.entry.stack.frames[0][0] <= end
        assert finding.entry.thread.tid is not None
        assert finding.usable is not None
        assert finding.usable >= one.requested + 16
    assert found.live >= 1000 + sum(one.state == "live" for one in told)
    assert (found.unreadable, found.skipped) == (0, 0)
    assert found.damaged == len(found.blocks)


@pytest.mark.quick(
    "-audit,guards", "libjemalloc.so.2-audit,guards", "libtcmalloc_minimal.so.4-audit=20,log=100000,guards"
)
@pytest.mark.parametrize("words", ["audit,guards", "audit=20,log=100000,guards"])
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_writes_into_freed_blocks_are_found(tmp_path: Path, allocator: str, words: str) -> None:
    target, _site, told = taken(tmp_path, words, allocator)
    found = verified(target)
    gone = [finding for finding in found.blocks if finding.side == INSIDE]
    expected = {one.address: one for one in told if one.state == "freed" and one.written}
    assert len(expected) == 3
    assert {finding.address for finding in gone} == set(expected)
    for finding in gone:
        one = expected[finding.address]
        assert (finding.requested, list(finding.changes)) == (one.requested, [one.change])
        assert isinstance(finding.entry, Transaction)
        assert finding.entry.freed
        assert (finding.entry.alloc_stack.frames != []) == ("log" in words)
    assert found.freed >= 5


def test_without_guards_there_is_nothing_to_verify(tmp_path: Path) -> None:
    assert guards.verify(taken(tmp_path, "audit,log=1000", "", 1000, "clean").target) is None


def test_clean_blocks_stay_clean(tmp_path: Path) -> None:
    found = verified(taken(tmp_path, "audit,guards", "", 1000, "clean").target)
    assert (found.damaged, found.blocks, found.unreadable, found.skipped) == (0, [], 0, 0)
    assert found.live > 1000
    assert found.freed >= 5


def test_blocks_that_are_not_in_the_dump_are_counted(tmp_path: Path) -> None:
    """The core lacks the second half of the main heap."""
    whole, _site, told = taken(tmp_path, "audit,guards")
    complete = verified(whole)
    data = bytearray(Path(str(whole.path)).read_bytes())
    (table,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    for header in range(table, table + 56 * count, 56):
        _offset, start, _physical, size = struct.unpack_from("<4Q", data, header + 8)
        if start <= told[0].address < start + size:
            break
    struct.pack_into("<Q", data, header + 32, size // 2)
    cut = tmp_path / "cut"
    cut.write_bytes(data)
    blocks = [(one.address, one.address + one.requested + 16) for one in allocation_records(whole).all()]
    missing = sum(end > start + size // 2 for block, end in blocks if start <= block < start + size)
    found = verified(CoreFile(str(cut)))
    assert missing > 100
    assert (found.unreadable, found.live) == (missing, complete.live - missing)


def test_a_million_blocks(tmp_path: Path) -> None:
    target, _site, told = taken(tmp_path, "audit=4,guards", count=1_000_000)
    found = verified(target)
    assert found.live > 1_000_000
    assert found.damaged == sum(one.written != b"" for one in told)
