"""``bufctl_audit``, compared with what the program knew of its own allocations."""

from __future__ import annotations

import re

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from fixtures import cores
from fixtures.limits import CLOCK_SLACK
from fixtures.programs import SOURCES
from tests.auditkit import answer, callers, functions, text


@pytest.mark.quick("audit-kernel-dynamic-host", "audit=30,log=10000,contents=64,guards-kernel-stripped-host")
@pytest.mark.parametrize(
    ("options", "how", "variant", "userland"),
    [
        ("audit", "kernel", "dynamic", "host"),
        ("audit,log=10000", "gcore", "no-pie", "host"),
        ("audit=30,log=10000,contents=64,guards", "kernel", "stripped", "host"),
        ("audit,log=10000", "kernel", "dynamic", "arm64-bookworm"),
    ],
)
def test_every_block_has_the_record_that_it_should(options: str, how: str, variant: str, userland: str) -> None:
    """In a stripped program a function has no name, but its return address is exact.

    AArch64's auditor runs in qemu-user.
    """
    target, _truth, told = callers(options, how, variant, userland)
    seen = 0
    for address, known in told.items():
        if known.block.state == "freed":
            continue
        tables = answer(target, "bufctl_audit", hex(address))["tables"]
        (row,) = tables["bufctl_audit"]
        stack = row["stack"]
        assert (row["bufaddr"], row["requested"], row["event"]) == (hex(address), known.block.size, "live")
        assert row["thread"] == known.tid
        assert known.before - CLOCK_SLACK <= row["timestamp"] <= known.after + CLOCK_SLACK
        # For the program, a block with guards ends where its redzone begins.
        assert row["cache"] == f"malloc-{known.block.usable}" or "guards" in options
        first = 0 if known.block.name != "by_strdup" else 1  # libc's strdup is the caller of malloc
        assert int(stack[first + 1]["pc"], 16) == known.returns
        if variant != "stripped":
            assert functions(stack)[first] == known.block.name
        assert row["caller"] == stack[0]["name"]
        assert (row["lastlog"] != "0x0") == ("log" in options)
        seen += 1
    assert seen > 20


def test_the_whole_stack_down_to_where_the_thread_began() -> None:
    target, truth, _told = callers()
    calloced = next(b for b in truth.blocks.values() if b.name == "by_calloc" and b.state == "live")
    stack = answer(target, "bufctl_audit", hex(calloced.address))["tables"]["bufctl_audit"][0]["stack"]
    libc = ["libc.so.6`__libc_start_call_main", "libc.so.6`__libc_start_main"]
    assert functions(stack) == ["by_calloc", "every_kind", "main", *libc, "_start"]
    made = next(b for b in truth.blocks.values() if b.size == 700)
    stack = answer(target, "bufctl_audit", hex(made.address))["tables"]["bufctl_audit"][0]["stack"]
    assert functions(stack)[:2] == ["by_malloc", "allocator"]
    assert functions(stack)[-1].startswith("libc.so.6`clone")


def test_the_bufctl_the_buffer_and_any_address_in_it_are_one() -> None:
    target, truth, _told = callers()
    block = next(b for b in truth.blocks.values() if b.size == 700)
    tables = answer(target, "bufctl_audit", hex(block.address))["tables"]
    bufctl = tables["bufctl_audit"][0]["addr"]
    assert answer(target, "bufctl_audit", bufctl)["tables"] == tables
    assert answer(target, "bufctl_audit", hex(block.address + 650))["tables"] == tables


def test_a_freed_buffer_tells_who_freed_it_and_who_had_allocated_it() -> None:
    target, truth, told = callers()
    freed = [told[b.address] for b in truth.blocks.values() if b.size == 600]
    assert len(freed) == 8
    for known in freed:
        tables = answer(target, "bufctl_audit", hex(known.block.address))["tables"]
        (row,) = tables["bufctl_audit"]
        assert (row["event"], row["thread"], row["requested"]) == ("freed", known.freed_tid, 600)
        assert functions(row["stack"])[:2] == ["by_free", "freer"]
        assert int(row["stack"][1]["pc"], 16) == known.freed_returns
        assert functions(row["alloc_stack"])[:2] == ["by_malloc", "allocator"]
        assert int(row["alloc_stack"][1]["pc"], 16) == known.returns
        assert row["lastlog"] != "0x0"
        before = answer(target, "bufctl_audit", row["lastlog"])["tables"]["bufctl_audit"][0]
        assert (before["event"], before["thread"], before["bufaddr"]) == ("allocated", known.tid, row["bufaddr"])
    assert f"it had been allocated by thread {freed[0].tid} (allocator)" in text(target, "bufctl_audit", row["addr"])


def test_the_text_is_mdbs() -> None:
    """The head is the libumem tutorial's: two lines with columns of 16, and a stack 17 places to the right."""
    target, truth, told = callers()
    block = next(b for b in truth.blocks.values() if b.name == "by_memalign")
    record = answer(target, "bufctl_audit", hex(block.address))["tables"]["bufctl_audit"][0]
    lines = text(target, "bufctl_audit", hex(block.address)).splitlines()
    assert lines[0] == "            ADDR          BUFADDR        TIMESTAMP           THREAD"
    assert lines[1] == "                            CACHE          LASTLOG         CONTENTS"
    cells = [record["addr"][2:], f"{block.address:x}", f"{record['timestamp']:x}", told[block.address].tid]
    assert lines[2] == " ".join(f"{cell:>16}" for cell in cells)
    assert lines[3] == " ".join(f"{c:>16}" for c in ("", f"malloc-{block.usable}", record["lastlog"][2:], 0))
    source = (SOURCES / "callers.c").read_text().splitlines()
    for line, function in ((lines[4], "by_memalign"), (lines[5], "every_kind")):
        found = re.fullmatch(rf" {{17}}{function}\+0x[0-9a-f]+  \[callers\.c:(\d+)\]", line)
        assert found is not None
        text_of_line = source[int(found[1]) - 1]
        assert {"by_memalign": "memalign", "every_kind": "by_memalign"}[function] in text_of_line
    assert re.fullmatch(r" {17}_start\+0x[0-9a-f]+", lines[-1])


def test_the_contents_of_a_freed_buffer_are_kept() -> None:
    target, truth, _told = callers("audit=30,log=10000,contents=64,guards")
    freed = next(b for b in truth.blocks.values() if b.size == 600)
    (row,) = answer(target, "bufctl_audit", hex(freed.address))["tables"]["bufctl_audit"]
    assert target.read(int(row["contents"], 16), 64) == bytes([1]) * 64  # what the program wrote into it


def test_without_the_auditor_one_line_says_how_to_have_records() -> None:
    target = CoreFile(str(cores.take("freed").core))
    with pytest.raises(UserError) as error:
        answer(target, "bufctl_audit", "0x10")
    assert "dmods run -- PROG" in error.value.how
    assert "\n" not in error.value.what + error.value.how


def test_what_has_no_record_says_why() -> None:
    target, truth, _told = callers("audit")
    freed = next(b for b in truth.blocks.values() if b.size == 600)
    with pytest.raises(UserError, match="free"):
        answer(target, "bufctl_audit", hex(freed.address))
    with pytest.raises(UserError, match="neither a bufctl"):
        answer(target, "bufctl_audit", "main")
    sampled, truth, _told = callers("audit,sample=1000000000000")
    with pytest.raises(UserError, match="samples"):
        answer(sampled, "bufctl_audit", hex(next(iter(truth.addresses("live")))))
