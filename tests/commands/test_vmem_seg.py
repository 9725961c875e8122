"""``vmem_seg`` on oversized blocks, compared with what the program knew of them."""

from __future__ import annotations

import pytest

from dmods.errors import UsageError
from tests.auditkit import answer, callers, functions, text

OVERSIZED = 1 << 20


def test_the_record_of_every_oversized_block() -> None:
    target, truth, told = callers()
    big = [b for b in truth.blocks.values() if b.size >= OVERSIZED]
    assert len(big) == 3
    for block in big:
        tables = answer(target, "vmem_seg", "-v", hex(block.address))["tables"]
        (row,) = tables["vmem_seg"]
        known = told[block.address]
        assert (row["start"], row["size"], row["requested"]) == (hex(block.address), block.usable, block.size)
        assert int(row["end"], 16) == block.address + block.usable
        assert row["thread"] == known.tid
        assert known.before <= row["timestamp"] <= known.after
        assert functions(row["stack"])[0] == "by_malloc"
        assert int(row["stack"][1]["pc"], 16) == known.returns
        assert answer(target, "vmem_seg", "-v", row["addr"])["tables"] == tables


def test_the_text_is_mdbs() -> None:
    target, truth, _told = callers()
    block = next(b for b in truth.blocks.values() if b.size == OVERSIZED)
    lines = text(target, "vmem_seg", "-v", hex(block.address)).splitlines()
    assert lines[0] == "            ADDR TYPE            START              END             SIZE"
    assert lines[1] == "                                THREAD        TIMESTAMP"
    assert lines[2].split()[1:] == [
        "ALLC",
        *(f"{x:x}" for x in (block.address, block.address + block.usable)),
        str(block.usable),
    ]
    assert lines[4].startswith(" " * 17 + "by_malloc+0x")
    brief = text(target, "vmem_seg", hex(block.address)).splitlines()
    assert brief[0].split() == ["ADDR", "TYPE", "START", "END", "SIZE", "CALLER", "ASKED", "FOR"]
    assert "ALLC" in brief[1]


def test_what_is_not_oversized_is_pointed_elsewhere() -> None:
    target, truth, _told = callers()
    block = next(b for b in truth.blocks.values() if b.size == 700)
    with pytest.raises(UsageError) as error:
        answer(target, "vmem_seg", hex(block.address))
    assert error.value.how.startswith("bufctl_audit")
    with pytest.raises(UsageError):
        answer(target, "vmem_seg", "main")
