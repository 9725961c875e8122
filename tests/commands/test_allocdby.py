"""``allocdby``, compared with the program's own account of its threads."""

from __future__ import annotations

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UsageError, UserError
from fixtures import cores
from tests.auditkit import answer, callers


def test_a_threads_live_buffers_newest_first() -> None:
    target, truth, told = callers()
    seen = 0
    for tid in {known.tid for known in told.values()}:
        report = answer(target, "allocdby", str(tid))
        rows = report["tables"]["allocdby"]
        times = [row["timestamp"] for row in rows]
        assert times == sorted(times, reverse=True)
        live = {a for a, known in told.items() if known.tid == tid and known.block.state != "freed"}
        found = {int(row["bufaddr"], 16): row for row in rows}
        assert live <= found.keys()
        assert not truth.addresses("freed") & found.keys()
        assert {row["thread"] for row in rows} == {tid}
        assert all(found[address]["requested"] == told[address].block.size for address in live)
        assert report["totals"] == {"buffers": len(rows), "bytes": sum(row["requested"] for row in rows)}
        seen += len(live)
    assert seen == len(told) - len(truth.addresses("freed"))


def test_by_name_and_by_pthread_t() -> None:
    target, _truth, told = callers()
    tid = next(known.tid for known in told.values() if known.block.size == 700)
    assert answer(target, "allocdby", "allocator")["tables"] == answer(target, "allocdby", str(tid))["tables"]
    main = next(thread for thread in target.threads() if thread.tid == target.pid)
    pointer = hex(main.registers["fs_base"])
    assert answer(target, "allocdby", pointer)["tables"] == answer(target, "allocdby", str(main.tid))["tables"]


def test_the_newest_only() -> None:
    target, _truth, _told = callers()
    rows = answer(target, "allocdby", "allocator")["tables"]["allocdby"]
    assert answer(target, "allocdby", "allocator", "--top", "2")["tables"]["allocdby"] == rows[:2]


def test_a_thread_that_nobody_knows() -> None:
    target, _truth, told = callers()
    with pytest.raises(UsageError) as error:
        answer(target, "allocdby", "1")
    assert str(next(iter(told.values())).tid) in error.value.how


def test_without_the_auditor_one_line_says_how_to_have_records() -> None:
    with pytest.raises(UserError) as error:
        answer(CoreFile(str(cores.take("freed").core)), "allocdby", "1")
    assert "dmods run -- PROG" in error.value.how
