"""The stacks of tcmalloc's sampled blocks, compared with what ReadStackTraces() said in the process before the core."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from pathlib import Path

import pytest

from dmods.allocators.tcmalloc.walked import walked
from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from dmods.modules.auxv import AT_RANDOM
from dmods.modules.data import module_data
from dmods.process.arguments import variable
from dmods.records.callers import Callers
from dmods.records.model import Record
from dmods.records.sources import allocation_records
from fixtures import judge, tcmallocs
from fixtures.cores import CoreSet
from fixtures.tcmallocs import FULL, MINIMAL
from tests.auditkit import answer, text

PERIOD = 4096
SAMPLED = {"TCMALLOC_SAMPLE_PARAMETER": str(PERIOD)}
#: The host's is 2.10, trixie's 2.16.
RELEASES = ["host", "trixie", "sid"]
#: The functions of tcsampled.cc that allocate. ``drop`` frees what it allocated.
FUNCTIONS = {"small", "large", "aligned", "grown", "made", "deep", "leak"}


def take(userland: str = "host", which: str = FULL) -> CoreSet:
    return tcmallocs.take("tcsampled", userland=userland, which=which, env=SAMPLED)


def said(made: CoreSet) -> Counter[tuple[int, tuple[int, ...]]]:
    """Return the size and the stack of each live sample, as ReadStackTraces() has them: a bucket for each block."""
    facts, found = made.truth.facts, Counter[tuple[int, tuple[int, ...]]]()
    for bucket in range(facts["samples"]):
        assert facts[f"{bucket}.count"] == 1
        stack = (*(facts[f"{bucket}.{frame}"] for frame in range(facts[f"{bucket}.depth"])),)
        found[facts[f"{bucket}.size"], stack] += 1
    return found


def records(target: CoreFile) -> list[Record]:
    return list(allocation_records(target).all())


def frames(record: Record) -> tuple[int, ...]:
    return (*(address for address, _exact in record.stack.frames),)


@pytest.mark.parametrize("userland", RELEASES)
def test_each_sample_is_what_tcmalloc_says(userland: str) -> None:
    made = take(userland)
    target = judge.open_core(made)
    heap = find_heap(target)
    assert heap.notes == []
    (recording,) = allocation_records(target).recordings
    assert (recording.allocator, recording.mean, recording.notes) == ("tcmalloc", made.truth.facts["period"], [])
    mine = Counter((record.requested, frames(record)) for record in records(target))
    assert len({stack for _size, stack in mine}) > 10
    assert mine == said(made)


@pytest.mark.parametrize("userland", RELEASES)
def test_a_sample_has_the_size_and_the_caller_of_its_block(userland: str) -> None:
    made = take(userland)
    target = judge.open_core(made)
    callers, names, checked = Callers(target), set(), 0
    for record in records(target):
        block = made.truth.blocks.get(record.address)
        if block is None:
            continue  # of a library, from before truth_begin()
        stack = [name.split("+")[0] for name in callers.names(record.stack)]
        if block.state == "freed":
            assert "drop" not in stack  # a library has the memory since
            continue
        checked += 1
        assert record.requested >= block.size  # an aligned block asks for more
        assert block.name == "aligned" or record.requested == block.size
        assert block.name in stack
        names.add(block.name)
        assert record.stack.truncated == (block.name == "deep")
    assert checked > 100
    assert names == FUNCTIONS


def test_commands_show_who_allocated_sampled_blocks() -> None:
    made = take()
    target = judge.open_core(made)
    leak = next(one for one in records(target) if (b := made.truth.blocks.get(one.address)) and b.name == "leak")
    told = text(target, "whatis", hex(leak.address))
    assert "leak+" in told
    report = answer(target, "findleaks")
    rows = [row for table in report["tables"].values() for row in table if "caller" in row]
    callers = {row["caller"].split("+")[0] for row in rows if row["caller"]}
    assert "leak" in callers
    assert any("sampl" in note for note in report["notes"])
    users = answer(target, "umausers")
    assert any("sampl" in note for note in users["notes"])
    assert {row["caller"].split("+")[0] for row in users["tables"]["users"]} >= {"small", "large", "made"}
    # large() allocates far more than the sampling distance each time: nothing is estimated.
    large = [row for row in users["tables"]["users"] if row["caller"].startswith("large+")]
    blocks = [block.size for block in made.truth.blocks.values() if block.name == "large"]
    assert sum(row["count"] for row in large) == len(blocks)
    assert sum(row["bytes"] for row in large) == sum(blocks)
    profile = answer(target, "profile", "--source", "tcmalloc")
    assert any(row["function"] == "large" for row in profile["tables"]["top"])


def test_without_sampling_there_are_no_records() -> None:
    assert not allocation_records(judge.open_core(tcmallocs.take("tcsampled", which=FULL)))


@pytest.mark.thorough("another core")
def test_the_minimal_library_does_not_sample() -> None:
    assert not allocation_records(judge.open_core(take(which=MINIMAL)))


# -- damage: the check that failed is named ---------------------------------------------------------------------------


def damaged(made: CoreSet, tmp_path: Path, words: dict[int, int]) -> CoreFile:
    """Return the core with other words at these addresses."""
    core = tmp_path / "core"
    shutil.copy(made.core, core)
    data = core.read_bytes()
    (first,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    with open(core, "r+b") as stream:
        for number in range(count):
            kind, _flags, offset, start, _physical, length = struct.unpack_from("<IIQQQQ", data, first + number * size)
            for address, word in words.items():
                if kind == 1 and start <= address < start + length:
                    stream.seek(offset + address - start)
                    stream.write(struct.pack("<Q", word))
    return CoreFile(str(core), sysroot=str(made.sysroot) if made.sysroot else None)


def sampled(target: CoreFile) -> tuple[list[tuple[int, int, int, int]], int]:
    """Return the rows of the samples, and the head of their list."""
    found, refused = walked(target).found[0].samples(target.image(), list(module_data(target)))
    assert found is not None, refused
    return found[0], found[2]


def notes(target: CoreFile) -> str:
    return "\n".join(find_heap(target).notes)


def test_a_list_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    made = take()
    _rows, head = sampled(judge.open_core(made))
    target = damaged(made, tmp_path, {head + 16: 0, head + 24: 0})
    assert not allocation_records(target)
    assert "were sampled, but their stacks are not read: no list in a module's data" in notes(target)


def test_records_of_another_size_are_refused(tmp_path: Path) -> None:
    made = take()
    rows, _head = sampled(judge.open_core(made))
    target = damaged(made, tmp_path, {trace: 1 << 40 for _address, trace, _size, _stack in rows})
    assert not allocation_records(target)
    assert "most sampled spans do not lead to a stack" in notes(target)


def test_one_bad_record_costs_one_stack(tmp_path: Path) -> None:
    made = take()
    rows, _head = sampled(judge.open_core(made))
    address, trace, _size, _stack = rows[len(rows) // 2]
    target = damaged(made, tmp_path, {trace + 8: 1 << 20})
    assert len(records(target)) == len(rows) - 1
    assert allocation_records(target).of_block(address) is None
    assert f"1 of {len(rows)} sampled blocks of tcmalloc have no sound record" in notes(target)


def test_stacks_outside_of_code_are_refused(tmp_path: Path) -> None:
    made = take()
    rows, _head = sampled(judge.open_core(made))
    target = damaged(made, tmp_path, {trace + 16: 0x1000 for _address, trace, _size, _stack in rows})
    assert not allocation_records(target)
    assert "do not begin in executable memory" in notes(target)


def test_a_distance_that_nobody_told(tmp_path: Path) -> None:
    """The program overwrote its environment. The distance is not known then, and what is taken is said."""
    made = take()
    target = judge.open_core(made)
    assert variable(target, "TCMALLOC_SAMPLE_PARAMETER") == str(PERIOD)
    assert variable(target, "DMODS_NOBODY_SETS_THIS") is None
    text = f"TCMALLOC_SAMPLE_PARAMETER={PERIOD}\0".encode()
    stack = target.auxv[AT_RANDOM]
    at = stack + target.image().read(stack, 1 << 16).index(text)
    (recording,) = allocation_records(damaged(made, tmp_path, {at: 0})).recordings
    assert recording.mean == 1 << 19
    (note,) = recording.notes
    assert "the distance between its samples is not known" in note
