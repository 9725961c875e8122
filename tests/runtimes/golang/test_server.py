"""A Go web server at work, under load from loopback: in cores that gcore took, and in one of its own making.

For the last one the server wrote down its goroutines and its heap in the instant before it died.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from dmods.runtimes.golang.goroutines import RUNNING, find_goroutines
from fixtures import answers, cores
from fixtures.limits import HANG
from tests.runtimes.golang.test_goroutines import as_stack_prints, said
from tests.runtimes.golang.test_heap import build, memory_statistics

pytestmark = pytest.mark.thorough("it builds Go programs with several releases of Go")

COMMANDS = (
    *("findleaks", "heapcheck", "malloc_stats", "heapsizes", "maps", "stacks", "findstack", "panicinfo", "triage"),
    *("goroutines", "goobjects", "owners", "suspects", "types"),
)
DAMAGE = ("damage", "corrupt", "were found", "overlap", "not in the dump", "cannot be right", "is not known")
CLIENTS = 6
REQUESTS = 1500  # before the first core


class Server(NamedTuple):
    process: subprocess.Popen[bytes]
    folder: Path
    address: str


@contextmanager
def serving(program: Path, folder: Path) -> Iterator[Server]:
    script = 'ulimit -c unlimited; echo 0x33 > /proc/self/coredump_filter; exec "$0" "$@"'
    process = subprocess.Popen(["sh", "-c", script, program, "address", "stacks", "stats"], cwd=folder)
    try:
        deadline = time.monotonic() + HANG
        while not (folder / "address").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield Server(process, folder, (folder / "address").read_text())
    finally:
        process.kill()
        process.wait()


class Load:
    """Clients that send requests until they are told to end, or until the server is gone."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.served = 0
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._client, args=(number,)) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _client(self, number: int) -> None:
        chance = random.Random(number)
        while not self._ends.is_set():
            what = chance.choice(["json", "page", "gzip", "task", "task", "slow"])
            url = f"http://{self.address}/{what}?user=u{chance.randrange(3000)}"
            try:
                with urllib.request.urlopen(url, b"x" * 300 if what == "task" else None, timeout=HANG) as answer:
                    answer.read()
            except (urllib.error.URLError, OSError):
                time.sleep(0.01)  # while gdb holds the server, its queue of connections may be full
                continue
            self.served += 1

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + HANG
        while self.served < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()


class Cores(NamedTuple):
    at_work: list[Path]
    died: Path


_SELDOM = pytest.mark.seldom("other releases of Go serve, too")


@pytest.fixture(
    scope="module",
    params=[pytest.param("1.20.14", marks=_SELDOM), "1.24.13", pytest.param("1.26.0", marks=_SELDOM), "1.27.4"],
)
def dumped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cores:
    where = tmp_path_factory.mktemp("goserver")
    cache = tmp_path_factory.getbasetemp() / f"cache-{request.param}"
    program = build(request.param, "-s -w", "goserver.go", where, cache)
    folder = where / "run"
    folder.mkdir()
    with serving(program, folder) as server:
        load = Load(server.address)
        try:
            at_work = []
            for number in range(2):
                load.wait_for(REQUESTS * (number + 1))
                at_work.append(where / f"gcore.{number}")
                cores.gcore(server.process.pid, at_work[-1], asleep=False)
            with suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"http://{server.address}/die", timeout=HANG)
            server.process.wait(HANG)
        finally:
            load.end()
    return Cores(at_work, next(path for path in folder.iterdir() if path.name.startswith("core")))


def test_every_command_answers_and_nothing_is_damaged(dumped: Cores) -> None:
    for core in (*dumped.at_work, dumped.died):
        target = CoreFile(str(core))
        assert find_heap(target).notes == []
        for command in COMMANDS:
            answer = answers.answer(target, command)
            wrong = [note for note in answer["notes"] if any(word in note for word in DAMAGE)]
            assert wrong == [], command
        leaks = answers.answer(target, "findleaks")["totals"]
        assert (leaks["direct_count"], leaks["indirect_count"]) == (0, 0)
        found = answers.by_name(answers.answer(target, "triage"))["findings"]
        assert [row["kind"] for row in found if row["kind"] != "abort"] == []


def test_goroutines_are_those_of_the_servers_own_dump(dumped: Cores) -> None:
    target = CoreFile(str(dumped.died))
    ours = {one.number: one for one in find_goroutines(target).all if not one.dead}
    theirs = said(dumped.died.with_name("stacks").read_text())
    assert len(theirs) > 8 + CLIENTS
    same = 0
    for number, word in theirs.items():
        one = ours.get(number)
        if one is not None and one.status != RUNNING:  # it may have gone on, or have ended, before the process died
            same += as_stack_prints(target, one) == word.frames and one.state == word.state.partition(",")[0]
    assert same >= 0.7 * len(theirs)
    work = Counter(stack[-1][0] for one in ours.values() if (stack := as_stack_prints(target, one)))
    assert work["main.work"] == 8


def test_the_heap_is_that_of_the_runtime(dumped: Cores, request: pytest.FixtureRequest) -> None:
    heap = find_heap(CoreFile(str(dumped.died)))
    in_use, by_size = memory_statistics(dumped.died.with_name("stats").read_bytes())
    ours = {size: count for size, count, *_rest in heap.marks.engine.sizes() if count}
    assert sum(size * count for size, count in ours.items()) == in_use
    assert {size: ours.get(size, 0) for size in by_size} == by_size
    counts = {row["type"]: row["count"] for row in answers.by_name(answers.typed("goobjects", dumped.died))["types"]}
    # Up to 1.21 an object has a type only if an interface value leads to it.
    if not str(request.node.callspec.params["dumped"]).startswith("1.20"):
        assert 1000 < counts["main.session"] <= 3000
    assert counts["map[string]string"] >= counts["main.session"] - 2 * CLIENTS  # a copy of a session has none


def test_all_front_ends_say_the_same(dumped: Cores) -> None:
    core = dumped.at_work[0]
    in_gdb = ["gdb", "-nx", "-q", "-batch", "-x", answers.ROOT / "heapcmds.py", core, "-ex", "echo [begin]"]
    for command in ("goroutines", "goobjects", "findleaks", "owners"):
        said_there = answers.finished(*in_gdb, "-ex", f"mdb {command} --json").stdout.partition("[begin]")[2]
        there, here = json.loads(said_there), answers.typed(command, core)
        assert there["tables"] == here["tables"], command
