"""``umausers``, compared with the sums of what the program allocated."""

from __future__ import annotations

from collections import defaultdict

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UsageError, UserError
from fixtures import audited, cores
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
    for user in users:
        stack = user["stack"]
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
    """The mean is 64 bytes. Large blocks are recorded for certain and count once; a small one stands for several."""
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


def wrapped() -> tuple[CoreFile, dict[str, list[int]]]:
    """Return a core of wrapped.cc, and the sizes of its blocks by caller."""
    made = audited.take("wrapped")
    sizes: dict[str, list[int]] = defaultdict(list)
    for block in made.truth.blocks.values():
        sizes[block.name.partition("(")[0]].append(block.size)
    return CoreFile(str(made.core)), dict(sizes)


def test_stacks_that_differ_in_one_deep_frame_are_one_group() -> None:
    """150 functions call the same six functions, and a recursion allocates at 40 depths."""
    target, sizes = wrapped()
    rows = answer(target, "umausers", "--all")["tables"]["users"]
    by_caller = {row["caller"].partition("+0x")[0]: row for row in rows}
    assert len(rows) == len(by_caller), "one group for each caller"
    for name in ("chain_1", "descend"):
        assert by_caller[name]["bytes"] == sum(sizes[name])
        assert by_caller[name]["count"] == by_caller[name]["stacks"] == len(sizes[name])
    whole = answer(target, "umausers", "--all", "--depth", "0")["tables"]["users"]
    assert all(row["stacks"] == 1 for row in whole)
    assert len(whole) == sum(row["stacks"] for row in rows) >= 190


def test_groups_by_function() -> None:
    target, sizes = wrapped()
    report = answer(target, "umausers", "--by", "function", "--all")
    rows = {row["function"]: row for row in report["tables"]["users"]}
    for name, own in sizes.items():
        assert (rows[name]["bytes"], rows[name]["count"]) == (sum(own), len(own))
    assert sum(row["percent"] for row in rows.values()) == pytest.approx(100)


def test_groups_by_library_and_size() -> None:
    target, sizes = wrapped()
    libraries = {row["library"]: row for row in answer(target, "umausers", "--by", "library")["tables"]["users"]}
    own = [size for each in sizes.values() for size in each]
    assert libraries["wrapped"]["bytes"] == sum(own)
    assert libraries["wrapped"]["count"] == len(own)
    by_size = {row["size"]: row for row in answer(target, "umausers", "--by", "size", "--all")["tables"]["users"]}
    for size in (48, 56, 1001, 1010):
        assert by_size[size]["count"] == sum(each == size for each in own)
        assert by_size[size]["bytes"] == size * by_size[size]["count"]


def test_groups_by_source_file() -> None:
    target, sizes = wrapped()
    rows = answer(target, "umausers", "--by", "file", "--all")["tables"]["users"]
    (row,) = [row for row in rows if row["file"].rpartition("/")[2] == "wrapped.cc"]
    assert row["bytes"] == sum(size for own in sizes.values() for size in own)


def test_groups_by_thread() -> None:
    target, _truth, told = callers()
    rows = answer(target, "umausers", "--by", "thread")["tables"]["users"]
    expected: dict[int, list[int]] = defaultdict(list)
    for known in told.values():
        if known.block.state != "freed":
            expected[known.tid].append(known.block.size)
    found = {int(row["thread"].split()[0]): row for row in rows}
    worker = next(known.tid for known in told.values() if known.block.size == 700)
    assert (found[worker]["bytes"], found[worker]["count"]) == (sum(expected[worker]), len(expected[worker]))


def test_what_is_not_shown_is_said() -> None:
    target, _sizes = wrapped()
    everything = answer(target, "umausers", "--all")
    for words in (("--top", "2"), ("--min", "2K")):
        report = answer(target, "umausers", *words)
        rows = report["tables"]["users"]
        hidden = everything["tables"]["users"][len(rows) :]
        assert hidden
        assert report["totals"]["shown_bytes"] == sum(row["bytes"] for row in rows)
        assert report["totals"]["bytes"] == everything["totals"]["bytes"]
        lines = text(target, "umausers", *words).splitlines()
        (line,) = [line for line in lines if line.endswith(f" in {len(hidden)} smaller groups (--all shows them)")]
        assert int(line.split()[0]) == sum(row["bytes"] for row in hidden)
    assert all(row["bytes"] >= 2048 for row in rows)
    with pytest.raises(UsageError, match="not a size"):
        answer(target, "umausers", "--min", "many")
