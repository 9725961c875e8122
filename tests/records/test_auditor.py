"""The reader of the auditor's tables on tables made by hand by audit/format.h: sound ones, and damaged ones.

tests/commands/test_bufctl_audit.py and its neighbours test the reader on real tables.
"""

from __future__ import annotations

import math
import struct
import time
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, cast

import pytest

from dmods import _engine
from dmods.process.arch import X86_64
from dmods.records import audit_format, auditor
from dmods.records.model import Records
from dmods.target import AddressRange, Target
from fixtures.limits import HANG_CPU

TOP, MIDDLE, LEAF, CHUNKS, NODES, RING, CONTENTS = (0x10000 * n for n in range(1, 8))
GRANULE, LEAF_RECORDS, MIDDLE_COUNT, TOP_COUNT = 5, 16, 4, 4
# Shifts and counts as format.h orders them: top, middle, granule and leaf, record size, offset shift.
SHAPE = [11, TOP_COUNT, 9, MIDDLE_COUNT, GRANULE, LEAF_RECORDS, 16, 3]
# live offset stack thread size time freed
BITS = [(0, 0, 1), (0, 2, 2), (0, 22, 28), (0, 4, 18), (0, 50, 14), (1, 0, 64), (0, 1, 1)]
LARGE = (1 << 14) - 1
of_record = attrgetter("address", "at", "size", "time", "stack", "thread")
of_event = attrgetter("at", "sequence", "freed", "address", "size", "time", "stack", "thread")
of_allocation = attrgetter("alloc_time", "alloc_stack", "alloc_thread", "contents", "contents_size")


def record(size: int, stack: int = 0, thread: int = 0, time: int = 0, *, offset: int = 0, live: int = 1) -> bytes:
    """Return a record of a table. ``live`` 2 means freed."""
    return struct.pack("<2Q", live | offset << 2 | thread << 4 | stack << 22 | size << 50, time)


def entry(sequence: int, address: int, event: int, **more: int) -> bytes:
    values = {"size": 8, "time": 0, "stack": 0, "thread": 0, "contents": 0, "at": 0, "by": 0, "on": 0, **more}
    return struct.pack(
        "<4Q4IQ2I", sequence, address, values["size"], values["time"], values["stack"], values["thread"], event,
        values["contents"], values["at"], values["by"], values["on"],
    )  # fmt: skip


@dataclass
class Tables:
    """The tables to be read, with the memory that they are in. Each test damages one thing."""

    records: dict[int, bytes] = field(default_factory=dict)  # number of the granule -> record
    nodes: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0), (0x1000, 0), (0x2000, 1), (0x3000, 2)])
    log: list[bytes] = field(default_factory=list)
    top: list[int] = field(default_factory=lambda: [MIDDLE, 0, 0, 0])
    middle: list[int] = field(default_factory=lambda: [LEAF, 0, 0, 0])
    shape: list[int] = field(default_factory=lambda: list(SHAPE))
    bits: list[tuple[int, int, int]] = field(default_factory=lambda: list(BITS))
    count: int = 4
    capacity: int = 8
    frames: int = 15

    def image(self) -> _engine.Image:
        leaf = b"".join(self.records.get(n, bytes(16)) for n in range(LEAF_RECORDS))
        ring = b"".join(self.log).ljust(64 * 8, b"\0")
        nodes = b"".join(struct.pack("<QII", pc, parent, 0) for pc, parent in self.nodes)
        blobs = [
            (TOP, struct.pack("<4Q", *self.top)),
            (MIDDLE, struct.pack("<4Q", *self.middle)),
            (LEAF, leaf),
            (CHUNKS, struct.pack("<2Q", NODES, 0)),
            (NODES, nodes),
            (RING, ring),
            (CONTENTS, bytes(16 * 8)),
        ]
        return _engine.Image([], [], blobs)

    def read(self) -> tuple[_engine.Records, tuple[bool, bool, bool, int, int]]:
        shadow = (TOP, self.shape, self.bits)
        stacks = (CHUNKS, 4, 2, 16, self.count)
        rings = (RING, self.capacity, 64), (CONTENTS, self.capacity, 16)
        return _engine.read_audit(self.image(), shadow, stacks, *rings, (1000, 1, 3, 2), self.frames, 0, None)


SOUND = (False, False, False, 0, 0)


def test_sound_tables_are_read_as_they_are() -> None:
    records = {1: record(100, 3, 7, 20), 5: record(LARGE, 2, 0, 0, offset=2), 6: record(0, live=0, time=1 << 40)}
    found, damage = Tables(records).read()
    assert damage == SOUND
    # A time t is 1000 + (t << 1) * 3 / 2 ns; the size of the second is in the record after it.
    rows = list(map(of_record, found.records(0, 9)))
    assert rows == [(32, LEAF + 16, 100, 1060, 3, 7), (160 + 16, LEAF + 80, 1 << 40, 1000, 2, 0)]
    assert found.stack(3) == ([(0x3000, False), (0x2000, False), (0x1000, False)], False)
    assert of_record(found.of_block(176)) == of_record(found.at(LEAF + 80)) == rows[1]
    assert found.of_block(160) is None


def test_half_written_records_are_left_out() -> None:
    found, damage = Tables({1: record(100, 3, live=0), 2: bytes(8) + b"\xff" * 8, 3: record(5)}).read()
    assert damage == SOUND
    assert [row.address for row in found.records(0, 9)] == [96]


@pytest.mark.parametrize(
    "spoilt",
    [
        Tables({1: record(8)}, top=[MIDDLE] * 4),
        Tables({1: record(8)}, middle=[LEAF] * 4),
        Tables({1: record(8)}, middle=[LEAF, LEAF + 16, LEAF - 16, 0]),
        Tables({1: record(8)}, middle=[LEAF, TOP, MIDDLE, 0]),
    ],
)
def test_one_table_in_many_places_is_read_once(spoilt: Tables) -> None:
    """Otherwise a few bytes would stand for any number of records."""
    found, damage = spoilt.read()
    assert [row.address for row in found.records(0, 99)] == [32]
    assert damage[3] > 0


def test_tables_that_are_not_in_the_dump_are_told() -> None:
    found, damage = Tables({1: record(8)}, middle=[LEAF, 0xDEAD0000, (1 << 64) - 8, 0]).read()
    assert len(found) == 1
    assert damage[3] == 2


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 64),
        (0, 12),
        (2, 200),
        (3, 0),
        (3, 3),
        (4, 2),
        (4, 40),
        (5, 0),
        (5, 7),
        (6, 0),
        (6, 12),
        (6, 1 << 20),
        (7, 9),
    ],
)
def test_numbers_that_make_no_sense_are_not_believed(place: int, value: int) -> None:
    spoilt = Tables({1: record(8)})
    spoilt.shape[place] = value
    found, damage = spoilt.read()
    assert len(found) == 0
    assert damage[0]


@pytest.mark.parametrize("bits", [(2, 0, 1), (0, 64, 1), (0, 0, 0), (0, 60, 5), (255, 255, 255)])
def test_bits_outside_a_record_are_not_believed(bits: tuple[int, int, int]) -> None:
    for place in range(6):
        spoilt = Tables({1: record(8)})
        spoilt.bits[place] = bits
        found, damage = spoilt.read()
        assert (len(found), damage[0]) == (0, True)


def test_counts_beyond_all_memory_cost_nothing() -> None:
    spoilt = Tables({1: record(8)}, count=(1 << 64) - 1, capacity=1 << 57)
    spoilt.shape[1] = (1 << 32) - 1
    begun = time.process_time()
    found, damage = spoilt.read()
    assert time.process_time() - begun < HANG_CPU
    assert len(found) == 0  # a table of 32 GiB would overlap the others
    assert damage[3] > 0


def test_circles_in_the_tree_of_stacks_end() -> None:
    spoilt = Tables({1: record(8, 3)}, nodes=[(0, 0), (1, 3), (2, 1), (3, 2)])
    found, _damage = spoilt.read()
    assert found.stack(3) == ([(3, False), (2, False), (1, False)], False)
    assert len(Tables({}, nodes=[(n, n - 1 if n else 0) for n in range(4)], frames=2).read()[0].stack(3)[0]) == 2


def test_a_stack_or_thread_that_is_in_no_table_is_unknown() -> None:
    found, _damage = Tables({1: record(8, stack=4, thread=1000)}).read()
    (row,) = found.records(0, 9)
    assert row.stack == 0
    assert found.stack(row.stack) == ([], False)
    assert found.stack((1 << 32) - 1) == ([], False)


def test_the_log_is_read_in_order_and_without_what_was_being_overwritten() -> None:
    log = [
        entry(9, 0x500, 2, stack=2, contents=99, at=4, by=1, on=3),  # the ring went round
        entry(2, 0x500, 1, stack=3, thread=5, time=2),
        entry(0, 0x600, 1),  # being written
        entry(77, 0x600, 1),  # in the wrong place
        entry(5, 0x700, 9),  # no such event
        entry(6, 0x700, 1, stack=1000),
    ]
    found, damage = Tables(log=log).read()
    assert damage[4] == 1
    assert [row.sequence for row in found.log(1 << 64, 9)] == [9, 6, 2]
    freed = found.logged_of(0x500, 9)[0]
    # An entry of the contents log holds only 16 bytes.
    assert of_event(freed) == (RING, 9, True, 0x500, 8, 1000, 2, 0)
    assert of_allocation(freed) == (1012, 1, 3, CONTENTS, 16)
    assert found.log(1 << 64, 9)[1].stack == 0
    assert [row.sequence for row in found.log(9, 1)] == [6]


def test_what_freed_blocks_records_say_comes_before_the_log() -> None:
    records = {
        1: record(40, 3, 7, 20, live=2),
        3: record(90, 1, 2, 9),
        4: record(30, 1, 7, 5, live=2),  # a leftover inside that block
        8: record(LARGE, 2, 7, 15, live=2, offset=1),
        9: record(0, live=0, time=1 << 20),
        11: record(LARGE, 2, 7, 1, live=2),  # another block has taken a part of its memory
        12: record(8, 1, 7, 2, live=2),
        14: record(8, 2, 7, 3, live=2),  # the log has this block
    }
    log = [entry(9, 448, 2, stack=2, time=3)]
    found, damage = Tables(records, log=log).read()
    assert damage == SOUND
    assert [row.address for row in found.records(0, 9)] == [96]
    # (sequence, block, size): the numbers before the log's first, in the order of being freed.
    said = [(row.sequence, row.address, row.size) for row in found.log(1 << 64, 9)]
    assert said == [(9, 448, 8), (8, 32, 40), (7, 264, 1 << 20), (6, 384, 8)]
    at_first = found.logged_at(LEAF + 16)
    assert of_event(at_first) == (LEAF + 16, 8, True, 32, 40, 1060, 3, 7)
    assert of_allocation(at_first) == (0, 0, 0, 0, 0)
    count, size, newest = found.newest(True, [7], 2)
    assert (count, size) == (3, 40 + (1 << 20) + 8)
    assert list(map(of_record, newest)) == [(32, LEAF + 16, 40, 1060, 3, 7), (264, LEAF + 128, 1 << 20, 1045, 2, 7)]
    count, size, newest = found.newest(False, [2], 9)
    assert (count, size, list(map(of_record, newest))) == (1, 90, [(96, LEAF + 48, 90, 1027, 1, 2)])
    without = Tables(records, log=log)
    without.bits[6] = (0, 0, 0)  # an auditor that has no such bit
    assert len(without.read()[0].log(1 << 64, 9)) == 1


# -- the root ---------------------------------------------------------------------------------------------------------

ROOT = 0x40000000


class Process:
    """A Target with the parts that the search for the auditor uses."""

    arch = X86_64
    names_files = True

    def __init__(self, root: bytes) -> None:
        self._image = _engine.Image([], [], [(ROOT, root.ljust(4096, b"\0"))])

    def image(self) -> _engine.Image:
        return self._image

    def state(self) -> None:
        """A core does not change."""

    def mappings(self) -> list[AddressRange]:
        return [AddressRange(ROOT, ROOT + 4096, "rw-", "/usr/lib/libdmods_audit.so", 0, 4096)]

    def modules(self) -> list[Any]:
        return []

    def threads(self) -> list[Any]:
        return []


def root(version: int = 1, size: int = auditor.SIZE, state: int = audit_format.RECORDING, status: str = "") -> bytes:
    data = bytearray(auditor.SIZE)
    struct.pack_into("<16s3I", data, 0, audit_format.MAGIC, version, size, state)
    data[736 : 736 + len(status)] = status.encode()  # offsetof(struct dmods_audit_root, status)
    return bytes(data)


def found(data: bytes) -> Records:
    recording = auditor.find_auditor(cast(Target, Process(data)))
    return Records([recording] if recording is not None else [])


def test_an_auditor_that_was_off_or_is_not_there_recorded_nothing() -> None:
    assert not found(root(state=audit_format.OFF))
    assert not found(b"DMODS-AUDIT-ROOF" + root()[16:])
    assert found(root())


def test_an_unknown_version_is_told_and_not_read() -> None:
    records = found(root(version=2))
    assert "version 2" in records.notes[0]
    assert list(records.all()) == []


def test_what_the_auditor_says_is_told() -> None:
    assert (
        "the auditor says: no memory for the tables"
        in found(root(state=audit_format.STOPPED, status="no memory for the tables")).notes
    )
    assert any("just starting" in note for note in found(root(state=audit_format.STARTING)).notes)


@pytest.mark.parametrize("size", [0, 4, 32, 100, 640, 1007, auditor.SIZE, 1 << 31])
def test_a_root_of_any_size_is_read_as_far_as_it_goes(size: int) -> None:
    records = found(root(size=size))
    assert list(records.all()) == []
    assert list(records.log()) == []


def test_a_root_full_of_ones() -> None:
    records = found(root()[:32] + b"\xff" * (auditor.SIZE - 32))
    assert list(records.all()) == []
    assert records.own == []
    assert any("make" in note for note in records.notes)


def test_the_weight_of_a_sample() -> None:
    """A block of n bytes is sampled with a chance of 1 - e^(-n / mean)."""
    rows = [(16, 1, 100, 5, 1, 0), (32, 2, 100, 3, 1, 0), (64, 3, 5000, 4, 2, 0)]
    store = _engine.Records(rows, [], [[1, 2], [3, 2]], 1000)
    weights = {size: 1 / (1 - math.exp(-size / 1000)) for size in (100, 5000)}
    by_stack = {user.count: (user.likely_count, user.likely_bytes) for user in store.users()}
    assert by_stack[2] == pytest.approx((2 * weights[100], 200 * weights[100]))
    assert by_stack[1] == pytest.approx((weights[5000], 5000 * weights[5000]))
