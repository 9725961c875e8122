"""``freedby``, compared with the program's own account of its threads."""

from __future__ import annotations

import pytest

from dmods.errors import UserError
from tests.auditkit import answer, callers


def test_what_a_thread_freed_newest_first() -> None:
    target, truth, told = callers()
    freed = [address for address, known in told.items() if known.block.size == 600]  # in the order of being freed
    assert len({told[address].freed_tid for address in freed}) == 1
    rows = answer(target, "freedby", str(told[freed[0]].freed_tid))["tables"]["freedby"]
    assert [int(row["bufaddr"], 16) for row in rows if row["requested"] == 600] == freed[::-1]
    assert all(row["caller"].startswith("by_free+0x") for row in rows if row["requested"] == 600)
    assert answer(target, "freedby", "freer")["tables"]["freedby"] == rows
    assert not {int(row["bufaddr"], 16) for row in rows} & truth.addresses("live", "direct")


def test_guards_alone_know_what_a_thread_freed_too() -> None:
    target, truth, told = callers("audit,guards")
    rows = answer(target, "freedby", "freer")["tables"]["freedby"]
    freed = [address for address, known in told.items() if known.block.state == "freed"]  # in the order of being freed
    assert [int(row["bufaddr"], 16) for row in rows if int(row["bufaddr"], 16) in told] == freed[::-1]
    assert not {int(row["bufaddr"], 16) for row in rows} & truth.addresses("live", "direct")
    row = next(row for row in rows if int(row["bufaddr"], 16) == freed[0])
    (head,) = answer(target, "bufctl_audit", row["bufctl"])["tables"]["bufctl_audit"]
    assert (head["bufaddr"], head["event"], head["thread"]) == (row["bufaddr"], "freed", told[freed[0]].freed_tid)


def test_without_a_log_one_line_says_how_to_have_one() -> None:
    with pytest.raises(UserError, match="log") as error:
        answer(callers("audit").target, "freedby", "freer")
    assert "log=" in error.value.how
