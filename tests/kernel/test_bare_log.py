"""The kernel's log without debug information, from VMCOREINFO's offsets: a ring made by hand, and lies about it."""

from __future__ import annotations

import random
import struct
from typing import Any

from drgnext.kernel.crash.bare_log import crash_time, read_bare_log

BASE = 0xFFFFFFFF82000000
BITS, DATA_BITS = 3, 8
DESC, INFO, BLOCK = 24, 88, 8  # sizes of struct prb_desc and struct printk_info, as in 6.1, and of a block's header
RING, DESCS, INFOS, DATA, PRB = (BASE + at for at in (0x100, 0x1000, 0x2000, 0x3000, 0x10))
TEXTS = ["first", "two\nlines", "x" * 100, "wraps around the end", "", "last"]


class Program:
    """Memory from BASE on, as drgn's program gives it."""

    def __init__(self) -> None:
        self.memory = bytearray(0x4000)

    def put(self, address: int, form: str, *values: int) -> None:
        struct.pack_into(f"<{form}", self.memory, address - BASE, *values)

    def read(self, address: int, size: int) -> bytes:
        import drgn

        if not BASE <= address <= address + size <= BASE + len(self.memory):
            raise drgn.FaultError("not in the dump", address)
        return bytes(self.memory[address - BASE : address - BASE + size])


INFO_LINES = {
    "SYMBOL(prb)": f"{PRB:x}",
    "SIZE(prb_desc)": str(DESC),
    "SIZE(printk_info)": str(INFO),
    "OFFSET(printk_ringbuffer.desc_ring)": "0",
    "OFFSET(printk_ringbuffer.text_data_ring)": "48",
    "OFFSET(prb_desc_ring.count_bits)": "0",
    "OFFSET(prb_desc_ring.descs)": "8",
    "OFFSET(prb_desc_ring.infos)": "16",
    "OFFSET(prb_desc_ring.head_id)": "24",
    "OFFSET(prb_desc_ring.tail_id)": "32",
    "OFFSET(prb_desc.state_var)": "0",
    "OFFSET(prb_desc.text_blk_lpos)": "8",
    "OFFSET(prb_data_blk_lpos.begin)": "0",
    "OFFSET(prb_data_blk_lpos.next)": "8",
    "OFFSET(prb_data_ring.size_bits)": "0",
    "OFFSET(prb_data_ring.data)": "8",
    "OFFSET(printk_info.seq)": "0",
    "OFFSET(printk_info.ts_nsec)": "8",
    "OFFSET(printk_info.text_len)": "16",
}


def ring() -> Program:
    """Return a ring (kernel/printk/printk_ringbuffer.c) whose ids begin below 2^62 and whose text wraps."""
    prog = Program()
    first = (1 << 62) - 8  # the first id (DESC0_ID is such a number), and a position near the end of the data
    prog.put(PRB, "Q", RING)
    prog.put(RING, "I4xQQQQ", BITS, DESCS, INFOS, first + len(TEXTS) - 1, first)
    prog.put(RING + 48, "I4xQ", DATA_BITS, DATA)
    at = 64  # a position: blocks are multiples of 8 bytes
    for number, text in enumerate(TEXTS):
        data = text.encode()
        index = (first + number) & ((1 << BITS) - 1)
        size = BLOCK + (len(data) + 7) // 8 * 8
        begin, place = at, at % (1 << DATA_BITS)
        if not data:
            begin = following = 1  # NO_LPOS
        else:
            if place + size > 1 << DATA_BITS:  # it does not fit at the end
                place, at = 0, (at >> DATA_BITS) + 1 << DATA_BITS
            following = at = at + size
            prog.put(DATA + place, "Q", first + number)
            prog.memory[DATA + place + BLOCK - BASE : DATA + place + BLOCK + len(data) - BASE] = data
        state = (2 << 62) | (first + number)  # desc_finalized
        prog.put(DESCS + index * DESC, "QQQ", state, begin, following)
        prog.put(INFOS + index * INFO, "QQH", number, 1_500_000_000 * number, len(data))
    return prog


def read(prog: Any, info: dict[str, str]) -> tuple[list[tuple[float, str]], list[str]]:
    records, notes = read_bare_log(prog, info)
    return [(record.time, record.text) for record in records], notes


def test_every_record_in_order() -> None:
    expected = [(1.5 * number, line) for number, text in enumerate(TEXTS) for line in text.split("\n")]
    assert read(ring(), INFO_LINES) == (expected, [])


def test_who_printed_a_record_and_how_urgent_it_is() -> None:
    """The level and the facility are two bytes before the caller, which VMCOREINFO places (struct printk_info)."""
    prog = ring()
    for number in range(len(TEXTS)):
        index = ((1 << 62) - 8 + number) & ((1 << BITS) - 1)
        prog.put(INFOS + index * INFO + 18, "BBI", number, 0b01110 | number << 5, 0x80000000 | number)
    records, notes = read_bare_log(prog, {**INFO_LINES, "OFFSET(printk_info.caller_id)": "20"})  # type: ignore[arg-type]
    assert not notes
    expected = [number for number, text in enumerate(TEXTS) for _line in text.split("\n")]
    assert [(r.facility, r.level, r.caller) for r in records] == [(n, n, 0x80000000 | n) for n in expected]
    # Elsewhere, only the caller is known.
    records, _notes = read_bare_log(prog, {**INFO_LINES, "OFFSET(printk_info.caller_id)": "32"})  # type: ignore[arg-type]
    assert {(record.facility, record.level, record.caller) for record in records} == {(0, None, 0)}
    assert {record.caller for record in read_bare_log(prog, INFO_LINES)[0]} == {None}  # type: ignore[arg-type]


def test_a_record_that_was_being_written_is_left_out() -> None:
    prog = ring()
    last = (1 << 62) - 8 + len(TEXTS) - 1
    prog.put(DESCS + (last & 7) * DESC, "Q", last)  # desc_reserved
    assert [text for _time, text in read(prog, INFO_LINES)[0]][-1] == ""


def test_what_vmcoreinfo_lacks_is_said() -> None:
    for name in INFO_LINES:
        if name == "OFFSET(printk_info.seq)":
            continue
        found, notes = read(ring(), {key: value for key, value in INFO_LINES.items() if key != name})
        assert found == []
        assert len(notes) == 1
        assert name in notes[0]


def test_lies_end_in_a_note() -> None:
    random.seed(11)
    values = ["0", "-1", str(1 << 19), str(1 << 63), "99999999999999999999999", "x", "", "ffffffffffffffff"]
    for _round in range(300):
        info = dict(INFO_LINES)
        for name in random.sample(sorted(info), 3):
            info[name] = random.choice(values)
        prog = ring()
        for _count in range(random.randrange(3)):
            prog.put(RING + random.randrange(0, 72, 8), "Q", random.getrandbits(64))
        found, notes = read(prog, info)
        assert found or notes
        assert len(found) <= 1 << 12


def test_the_time_of_the_crash() -> None:
    assert crash_time({"CRASHTIME": "1795357201"}) == 1795357201
    assert crash_time({"CRASHTIME": "9" * 40}) is None
    assert crash_time({}) is None
