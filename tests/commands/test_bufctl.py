"""``bufctl``: a record in a line, and the history of an address."""

from __future__ import annotations

from fixtures.limits import CLOCK_SLACK
from tests.auditkit import answer, callers, text


def test_a_line_says_what_the_program_knew() -> None:
    target, truth, told = callers()
    assert len(truth.blocks) == 30
    for block in truth.blocks.values():
        (row,) = answer(target, "bufctl", hex(block.address))["tables"]["bufctl"]
        freed = block.state == "freed"
        known = told[block.address]
        assert row["event"] == ("freed" if freed else "live")
        assert row["bufaddr"] == hex(block.address)
        assert row["requested"] == block.size
        if not freed:
            assert row["thread"] == known.tid
            assert known.before - CLOCK_SLACK <= row["timestamp"] <= known.after + CLOCK_SLACK
            name = "libc.so.6`strdup" if block.name == "by_strdup" else block.name
            assert row["caller"].startswith(f"{name}+0x")


def test_verbose_is_bufctl_audit() -> None:
    target, truth, _told = callers()
    live = hex(next(iter(truth.addresses("live"))))
    assert text(target, "bufctl", "-v", live) == text(target, "bufctl_audit", live)


def test_the_history_of_an_address_is_newest_first() -> None:
    """three_times() frees a block, and the next block gets the same place."""
    target, truth, _told = callers()
    reused = min(b.address for b in truth.blocks.values() if b.size == 2000)
    rows = answer(target, "bufctl", "-H", hex(reused))["tables"]["bufctl"]
    events = [row["event"] for row in rows]
    assert events[:3] == ["live", "freed", "allocated"]  # the log has the live block's allocation, too: it is one event
    times = [row["timestamp"] for row in rows]
    assert times == sorted(times, reverse=True)
    assert [row["caller"].partition("+0x")[0] for row in rows[:3]] == ["by_malloc", *["three_times"] * 2]
    shown = text(target, "bufctl", "-H", hex(reused)).splitlines()
    assert shown[0].split()[-1] == "EVENT"
    assert [line.split()[-1] for line in shown[1:4]] == events[:3]


def test_the_heading_is_mdbs() -> None:
    target, truth, _told = callers()
    lines = text(target, "bufctl", hex(next(iter(truth.addresses("live"))))).splitlines()
    assert lines[0].split()[:5] == ["ADDR", "BUFADDR", "TIMESTAMP", "THRD", "CALLER"]
    assert len(lines) == 2
