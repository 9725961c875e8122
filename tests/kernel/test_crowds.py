"""Commands on a machine with 100,000 sockets and 30,000 tasks: right, and in work that grows as their number does.

A guest with a tenth of both tells how the work grows. It is counted in calls of functions (sys.setprofile), so that a
busy machine changes nothing.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import cache
from typing import Any

import drgn
import pytest

from dmods.command import KERNEL
from drgnext.kernel.dump.target import Kernel
from fixtures import answers
from fixtures.kernel import crowd
from fixtures.kernel.said import Said

pytestmark = [
    pytest.mark.thorough("it boots a guest of 2.5 GB"),
    pytest.mark.seldom("it boots a guest of 2.5 GB"),
]
THREADS = 1000  # of each process "many" (fixtures/kernel/crowd_guest/crowd.c)
COMMANDS = ("ps", "ps -T", "stacks", "sockets", "files")
#: How much more work ten times as much may be. It is less than ten times where a part of the work is always there, and
#: a little more where a tree is a level higher. Work that grew with the square would be a hundred times as much.
GROWTH = 13


class Crowd:
    """A guest with crowds. Each answer comes with the number of calls that it took."""

    def __init__(self, small: bool) -> None:
        self.guest: Said = crowd.guest(small)
        prog = drgn.Program()
        prog.set_core_dump(str(self.guest.vmcore))
        prog.load_debug_info([str(path) for path in (self.guest.kernel.vmlinux, *self.guest.kernel.debug)])
        self._kernel = Kernel(prog)
        self.ask = cache(self._ask)

    def _ask(self, command: str) -> tuple[dict[str, Any], int]:
        words = [*command.split(), *([str(self.guest.truth["pid_connected"])] if command == "files" else [])]
        calls = 0

        def count(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            answer = answers.answer(self._kernel, *words, side=KERNEL)
        finally:
            sys.setprofile(None)
        return answer, calls

    def rows(self, command: str) -> list[dict[str, Any]]:
        answer, _calls = self.ask(command)
        assert answer["notes"] == []
        found: list[dict[str, Any]] = answer["tables"][0]["rows"]
        return found


@pytest.fixture(scope="module", params=["small", "large"])
def one(request: Any) -> Crowd:
    return opened(request.param == "small")


@cache
def opened(small: bool) -> Crowd:
    return Crowd(small)


def test_tasks(one: Crowd) -> None:
    rows = {row["pid"]: row for row in one.rows("ps")}
    many = one.guest.pids("many")
    assert len(many) == crowd.THREADS // THREADS // (crowd.SMALLER if one is opened(True) else 1)
    assert {pid: (rows[pid]["name"], rows[pid]["threads"]) for pid in many} == dict.fromkeys(many, ("many", THREADS))
    threads = one.rows("ps -T")
    of_each = Counter(row["tgid"] for row in threads)
    assert {pid: of_each[pid] for pid in many} == dict.fromkeys(many, THREADS)
    # /proc/loadavg: running and all tasks. Some kworkers may come or go until the crash.
    (total,) = re.findall(r"\d+/(\d+) ", one.guest.said["/proc/loadavg"])
    assert abs(len(threads) - int(total)) <= 20


def test_stacks(one: Crowd) -> None:
    answer, _calls = one.ask("stacks")
    biggest = max(one.rows("stacks"), key=lambda row: row["count"])
    sleepers = len(one.guest.pids("many")) * THREADS
    # init's other children sleep in the same call.
    assert 0 <= biggest["count"] - sleepers <= 3
    assert answer["totals"]["tasks"] >= len(one.rows("ps -T"))


def test_sockets(one: Crowd) -> None:
    truth, pid = one.guest.truth, one.guest.truth["pid_connected"]
    rows = one.rows("sockets")
    assert len(rows) == truth["sockets"] == truth["tcp"] + truth["unix"]
    for protocol in ("tcp", "unix"):
        inodes = [row["inode"] for row in rows if row["protocol"] == protocol]
        assert (len(inodes), sum(inodes)) == (truth[protocol], truth[f"{protocol}_inodes"])
    assert {tuple(owner["pid"] for owner in row["owners"]) for row in rows} == {(pid,)}
    listens = [row for row in rows if row["state"] == "LISTEN"]
    unread = [row["received"] for row in rows if row["received"] and row not in listens]
    pairs = (truth["sockets"] - len(listens)) // 2
    assert len(unread) == -(-pairs // 100)
    assert set(unread) == {11}


def test_files(one: Crowd) -> None:
    rows = one.rows("files")
    sockets = {row["inode"] for row in rows if row["type"] == "socket"}
    assert sockets == {row["inode"] for row in one.rows("sockets")}
    assert [row["fd"] for row in rows] == sorted({row["fd"] for row in rows})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_work_grows_as_the_number_does(command: str) -> None:
    (_few, less), (_many, more) = (opened(small).ask(command) for small in (True, False))
    assert more <= GROWTH * less, (less, more)
