"""jemalloc's own allocation records, compared with what the program knew of its blocks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from dmods.records.callers import Callers
from dmods.records.sources import allocation_records
from fixtures import answers, jemallocs
from fixtures.cores import CoreSet
from tests.allocators.jemalloc.test_truth import problems_of

ALL = "prof:true,lg_prof_sample:0,prof_recent_alloc_max:-1"
SOME = "prof:true,lg_prof_sample:12"
OLD = "prof:true,lg_prof_sample:0"  # 5.2 keeps no transactions


def open_core(made: CoreSet) -> CoreFile:
    return CoreFile(str(made.core), sysroot=str(made.sysroot) if made.sysroot else None)


def report(command: str, made: CoreSet, *args: str) -> Any:
    return answers.typed(command, made.core, *args)


@pytest.mark.quick("freed-host")
@pytest.mark.parametrize("userland", ["host", "trixie", "sid", "bullseye"])
@pytest.mark.parametrize("program", ["graph", "freed"])
def test_every_live_block_has_its_record(program: str, userland: str) -> None:
    made = jemallocs.take(program, userland=userland, conf=OLD if userland == "bullseye" else ALL)
    target = open_core(made)
    heap, truth = find_heap(target), made.truth
    assert problems_of(made, heap) == []
    (recording,) = allocation_records(target).recordings
    live = {address: block for address, block in truth.blocks.items() if block.state != "freed"}
    found = {record.address: record for record in allocation_records(target).all()}
    assert not live.keys() - found.keys()
    freed = {address for address, block in truth.blocks.items() if block.state == "freed"}
    assert not freed & found.keys()
    tids = {thread.tid for thread in target.threads()}
    callers = Callers(target)
    for address, block in live.items():
        record = found[address]
        # 5.2 does not keep the requested size.
        assert record.requested == (block.usable if userland == "bullseye" else block.size)
        assert record.time > 0
        # A thread of "freed" has exited.
        assert record.thread.tid in (tids if program == "graph" else {*tids, None})
    names = {callers.caller(found[address].stack).text.split("+")[0] for address in live}
    assert names == ({"churn", "build", "scene"} & names)
    assert names
    if userland != "bullseye":
        assert recording.mean == 0
        log = list(allocation_records(target).log(freed=True))
        assert len(log) >= len(freed)
        assert all(entry.alloc_time <= entry.time and entry.stack.frames for entry in log)


def test_samples_say_how_far_apart_they_are() -> None:
    made = jemallocs.take("graph", conf=SOME)
    target = open_core(made)
    (recording,) = allocation_records(target).recordings
    assert recording.mean == 1 << 12
    assert problems_of(made, find_heap(target)) == []
    truth = made.truth
    live = sum(block.size for block in truth.blocks.values() if block.state != "freed")
    likely = sum(user.likely_bytes for user in allocation_records(target).users())
    assert abs(likely - live) < 0.1 * live


def test_findleaks_names_the_callers() -> None:
    made = jemallocs.take("graph", conf=ALL)
    said = report("findleaks", made)
    rows = [row for table in said["tables"] if table["name"] in ("leaks", "oversized") for row in table["rows"]]
    truth = made.truth
    assert sum(row["leaked"] for row in rows) == len(truth.addresses("direct")) + len(truth.cycles)
    assert {row["caller"].split("+")[0] for row in rows} == {"churn"}
    users = report("umausers", made)["tables"][0]["rows"]
    assert users
    leak = next(row for row in rows if row.get("bufctl"))
    audit = report("bufctl_audit", made, leak["bufctl"])
    text = json.dumps(audit)
    assert "churn" in text
    assert leak["buffer"] in text


def test_without_profiling_there_are_no_records() -> None:
    assert not allocation_records(open_core(jemallocs.take("graph")))
