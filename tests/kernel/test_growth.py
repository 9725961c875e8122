"""`growth` of two dumps of a kernel: of a guest that told how it grew, and of made-up figures."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dmods.base.dataclass import replace
from dmods.errors import UserError
from dmods.report import Report
from drgnext.commands._memory_use import MemoryUse, Program, Slabs
from drgnext.commands.growth import compared
from drgnext.kernel.dump.older import open_older
from fixtures import _cache, answers
from fixtures.kernel import grown

_MB = 1 << 20
_BATCH = 64 * 4096 * 2  # bytes: each CPU keeps back so much of what a process counts (mm_counter, SPLIT_RSS_COUNTING)
_OLD = MemoryUse(
    256 * _MB,
    {"anon": 20 * _MB, "slab": 10 * _MB, "free": 200 * _MB},
    {"dentry": Slabs(_MB, 1000), "gone_cache": Slabs(4096, 3)},
    {(1, 5): Program("init", _MB), (7, 9): Program("worker", 4 * _MB), (8, 9): Program("leaver", _MB)},
    10_000_000_000,
    1_700_000_000_000_000_000,
    b"one run",
)
_NOW = replace(
    _OLD,
    kinds={"anon": 45 * _MB, "slab": 15 * _MB, "free": 170 * _MB},
    caches={"dentry": Slabs(5 * _MB, 21_000), "new_cache": Slabs(8192, 5)},
    programs={(1, 5): Program("init", _MB), (7, 9): Program("worker", 28 * _MB), (8, 99): Program("other", 2 * _MB)},
    uptime=70_000_000_000,
)


def rows(report: Report) -> dict[str, list[dict[str, Any]]]:
    return {
        table.name: [dict(zip((column.name for column in table.columns), row)) for row in table.rows]
        for table in report.tables
    }


def test_kinds_caches_and_processes_that_grew() -> None:
    report = compared(_OLD, _NOW)
    found = rows(report)
    assert [(row["name"], row["growth_bytes"]) for row in found["kinds"] if row["name"] != "free"] == [
        ("anon", 25 * _MB),
        ("slab", 5 * _MB),
    ]
    assert [(row["cache"], row["growth_bytes"], row["growth_objects"]) for row in found["caches"]] == [
        ("dentry", 4 * _MB, 20_000),
        ("new_cache", 8192, 5),
        ("gone_cache", -4096, -3),
    ]
    # A pid that another process has now is another process.
    assert [(row["name"], row["pid"], row["growth_bytes"], row["state"]) for row in found["processes"]] == [
        ("worker", 7, 24 * _MB, None),
        ("other", 8, 2 * _MB, "new"),
        ("leaver", 8, -_MB, "gone"),
    ]
    assert [row["finding"] for row in found["findings"]] == [
        "anonymous grew by 25M: worker (pid 7) by 24M",
        "slab grew by 5.0M: dentry (+20,000 objects) by 4.0M",
    ]
    assert report.notes == ["1m00s passed between the dumps"]


def test_dumps_of_different_runs() -> None:
    for other in (replace(_NOW, boot_id=b"another"), replace(_NOW, boot_id=b"", boot=0)):
        report = compared(_OLD, other)
        assert report.notes == ["the dumps are of different runs of the machine: processes are compared by their names"]
        assert {row["name"]: row["growth_bytes"] for row in rows(report)["processes"]} == {
            "worker": 24 * _MB,
            "other": 2 * _MB,
            "leaver": -_MB,
        }
    # The wall clock was set, and the kernel says that it is one run.
    assert compared(_OLD, replace(_NOW, boot=0)).totals["same_boot"]


def test_the_newer_dump_first_and_no_growth() -> None:
    wrong = compared(_NOW, _OLD)
    assert wrong.notes == ["the dumps are in the wrong order: the first is 1m00s younger"]
    same = compared(_OLD, _OLD)
    assert [row["finding"] for row in rows(same)["findings"]] == ["no kind of page grew by 1% of all memory (2.6M)"]
    assert not any(table.rows for table in same.tables[1:])


def test_rows_that_are_not_shown_are_counted() -> None:
    many = replace(_NOW, caches={f"cache-{number}": Slabs(4096 * number, number) for number in range(1, 31)})
    table = compared(replace(_OLD, caches={}), many).tables[2]
    assert len(table.rows) == 10
    assert table.rows[0][-1] == "cache-30"
    assert table.footer == ["20 more (--top 30)"]
    assert len(compared(replace(_OLD, caches={}), many, 100).tables[2].rows) == 30


def test_objects_that_may_be_free() -> None:
    report = compared(replace(_OLD, exact=False), _NOW)
    assert "the older dump lacks a part of the lists of free objects" in report.notes[-1]
    assert report.totals["exact"] is False
    assert compared(_OLD, _NOW).totals["exact"] is True


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a text\n",
        b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, 5, 0, 0, 0),
        b"makedumpfile\0\0\0\0".ljust(5000, b"\1"),
        b"KDUMP   \6".ljust(9000, b"\0"),
    ],
    ids=["empty", "text", "headers", "flattened", "compressed"],
)
def test_an_older_dump_that_is_none(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(data)
    with pytest.raises(UserError) as refused:
        open_older(str(tmp_path / "old"))
    assert str(tmp_path / "old") in str(refused.value)


@pytest.mark.thorough("it boots a guest")
@pytest.mark.parametrize("release", ["5.10", "6.1", "6.12", "sid"])
def test_a_guest_that_grew(release: str) -> None:
    guest = grown.guest(release)
    typed = [_cache.ROOT / ".venv/bin/dmods", "growth", guest.old, guest.vmcore, "-s", guest.kernel.vmlinux, "--json"]
    done = subprocess.run([*typed, "--top", "100"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = answers.by_name(json.loads(done.stdout))
    processes = {row["name"]: row for row in found["processes"]}
    truth = guest.truth
    for name, kilobytes in (
        ("eater", truth["eater_now"] - truth["eater_old"]),
        ("fresh", truth["fresh_now"]),
        ("leaver", -truth["leaver_old"]),
    ):
        assert processes[name]["pid"] == truth[f"pid_{name}"]
        assert abs(processes[name]["growth_bytes"] - 1024 * kilobytes) <= _BATCH
    assert [processes[name]["state"] for name in ("eater", "fresh", "leaver")] == [None, "new", "gone"]
    caches = {row["cache"]: row["growth_objects"] for row in found["caches"]}
    assert truth["files"] <= caches["shmem_inode_cache"] <= truth["files"] + 100
    kinds = {row["name"]: row["growth_bytes"] for row in found["kinds"]}
    assert 10 * _MB <= kinds["shmem"] <= 11 * _MB
    sentences = [row["finding"] for row in found["findings"]]
    assert any(text.startswith("anonymous grew by") and "eater (pid" in text for text in sentences)
    assert any(text.startswith("slab grew by") and "shmem_inode_cache (+3," in text for text in sentences)
    total = json.loads(done.stdout)["totals"]
    assert total["same_boot"] is True
