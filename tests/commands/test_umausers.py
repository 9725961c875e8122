"""``umausers`` against the sums of what the program allocated."""

from __future__ import annotations

from collections import defaultdict

import pytest

from dmods.corefile import CoreFile
from dmods.errors import UserError
from fixtures import cores
from tests.auditkit import answer, callers, functions, text


def test_bytes_and_counts_by_stack_are_the_programs() -> None:
    target, _truth, told = callers()
    sums: dict[tuple[str, int], list[int]] = defaultdict(list)
    for known in told.values():
        if known.block.state != "freed" and known.block.name != "by_strdup":
            sums[known.block.name, known.returns].append(known.block.size)
    report = answer(target, "umausers", "--top", "1000")
    users = report["tables"]["users"]
    found = {}
    for number, user in enumerate(users, 1):
        stack = report["tables"][f"stack {number}"]
        if len(stack) > 1:
            found[functions(stack)[0], int(stack[1]["pc"], 16)] = user
    assert sums.keys() <= found.keys()
    for key, sizes in sums.items():
        user = found[key]
        assert (user["bytes"], user["count"]) == (sum(sizes), len(sizes))
        assert (user["least"], user["most"]) == (min(sizes), max(sizes))
    sizes = [user["bytes"] for user in users]
    assert sizes == sorted(sizes, reverse=True)
    assert report["totals"]["bytes"] == sum(sizes)
    assert report["totals"]["estimated"] == 0


def test_the_text_is_mdbs() -> None:
    target, _truth, _told = callers()
    lines = text(target, "umausers", "three_times").splitlines()
    assert "6000 bytes for 3 allocations with data size 2000:" in lines
    stack = lines[lines.index("6000 bytes for 3 allocations with data size 2000:") + 1 :]
    assert stack[0].startswith("         by_malloc+0x")
    assert stack[1].startswith("         three_times+0x")


def test_by_function() -> None:
    target, truth, _told = callers()
    users = answer(target, "umausers", "allocator")["tables"]["users"]
    live = [b for b in truth.blocks.values() if b.size in (24, 700) and b.state != "freed"]
    assert sum(user["count"] for user in users) == len(live)
    assert answer(target, "umausers", "by_free")["tables"]["users"] == []


def test_samples_are_weighted_and_said_to_be_estimates() -> None:
    """A mean of 64 bytes: large blocks are recorded for certain, and count once; a small one stands for several."""
    target, truth, _told = callers("audit,sample=64")
    report = answer(target, "umausers", "--top", "1000")
    assert report["totals"]["estimated"] == 1
    assert any("estimates" in note for note in report["notes"])
    largest = max(b.size for b in truth.blocks.values())
    assert report["tables"]["users"][0]["bytes"] == largest
    assert all(user["count"] >= user["records"] for user in report["tables"]["users"])
    exact = sum(b.size for b in truth.blocks.values() if b.state != "freed")
    assert report["totals"]["bytes"] == pytest.approx(exact, rel=0.01)


def test_without_the_auditor_one_line_says_how_to_have_records() -> None:
    with pytest.raises(UserError) as error:
        answer(CoreFile(str(cores.take("freed").core)), "umausers")
    assert "dmods run -- PROG" in error.value.how
