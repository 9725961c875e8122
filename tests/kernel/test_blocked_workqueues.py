"""The check of workqueues: works wait behind workers that do not end theirs, whether these sleep or run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Optional

import pytest

from dmods.finding import Finding
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.system.workqueues import Busy, Waiting
from drgnext.triage.checks import workqueues

_SECOND = 1_000_000_000


def worker(pid: int, state: str, ran: Optional[int], bh: bool = False) -> Busy:
    """Return a worker whose work has run for so many seconds."""
    task = None if bh else Task(pid << 16, pid, pid, f"kworker/u8:{pid}", 0, state == "R", 0)
    age = None if ran is None else ran * _SECOND
    return Busy(task, state, age, "wait_for_completion", f"work_{pid}", 8, 16, age, False, False, "", [])


def found(workers: list[Busy], late: int = 0, age: Optional[int] = None) -> list[Finding]:
    waits = Waiting(None, "" if age else "slow", 3, ["behind"], age, workers, 8)
    facts: Any = SimpleNamespace(
        reader=SimpleNamespace(symbol=lambda _name: 1), waiting_works=[waits], standing=set(), late=late * _SECOND
    )
    return [one for one in workqueues.run(facts) if isinstance(one, Finding)]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("D", "which has slept in wait_for_completion for 40.0s"),
        ("I", "which has slept in wait_for_completion for 40.0s"),
        ("S", "which has slept in wait_for_completion for 40.0s"),
        ("R", "which has run for at least 40.0s"),
    ],
)
def test_a_work_that_does_not_end(state: str, words: str) -> None:
    (blocked,) = found([worker(7, state, 40)])
    what = f"3 works wait (behind) in the workqueue slow for 40.0s, behind work_7 of kworker/u8:7 (7), {words}"
    assert (blocked.kind, blocked.what) == ("workqueue-blocked", what)
    assert blocked.next == ("workqueues", "findstack 7")


def test_works_that_end_are_well() -> None:
    assert found([worker(7, "D", 29)]) == []
    assert found([worker(7, "D", 40), worker(8, "R", 2)]) == []  # the other one will take the works
    assert found([worker(7, "D", 40), worker(8, "R", None)]) == []
    assert found([worker(7, "D", 40)], late=20) == []  # it is a panic's dump, 20 s later
    assert found([]) == []


def test_a_worker_of_softirqs_has_no_task() -> None:
    (blocked,) = found([worker(7, "", None, bh=True)], age=50 * _SECOND)
    assert "behind work_7 in a softirq" in blocked.what
    assert blocked.next == ("workqueues",)
