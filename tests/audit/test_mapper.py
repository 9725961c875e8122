"""dmods run --audit maps, compared with the books that tests/audit/mapper.c keeps of its own mappings."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.records.mapped import recorded_maps
from fixtures.answers import answer, by_name, dmods
from fixtures.cores import check_core_pattern
from tests.audit.auditor import compiled, environment

pytestmark = pytest.mark.thorough("a program that maps memory in every way")


class Range(NamedTuple):
    start: int
    end: int
    function: str
    call: str


class Taken(NamedTuple):
    target: CoreFile
    ranges: list[Range]


def take(where: Path, words: str) -> Taken:
    program = compiled("mapper.c", where / "mapper", "-D_GNU_SOURCE")
    check_core_pattern()
    subprocess.run(
        ["sh", "-c", "ulimit -c unlimited; exec ./mapper told"], cwd=where, env=environment(words), check=False
    )
    (core,) = where.glob("core*")
    lines = (line.split() for line in (where / "told").read_text().splitlines())
    ranges = [Range(int(start, 16), int(end, 16), *rest) for start, end, *rest in lines]
    return Taken(CoreFile(str(core), str(program)), ranges)


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    return take(tmp_path_factory.mktemp("mapper"), "maps")


def joined(ranges: list[Range]) -> list[Range]:
    """Return ranges with neighbours of one function and call joined."""
    found: list[Range] = []
    for one in sorted(ranges):
        last = found[-1] if found else None
        if last is not None and (last.end, *last[2:]) == (one.start, *one[2:]):
            found[-1] = last._replace(end=one.end)
        else:
            found.append(one)
    return found


def sums(ranges: list[Range]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in ranges:
        found[one.function] += one.end - one.start
    return found


def test_every_range_has_its_function_and_call(taken: Taken) -> None:
    """To the byte, after holes, overlaps, moves and calls that failed, in three threads at once."""
    found = recorded_maps(taken.target)
    assert found is not None
    ranges = []
    for row in found.recording.rows.records(0, 1 << 20):
        (pc, _exact), *_rest = found.recording.rows.stack(row.stack)[0]
        symbol = taken.target.symbol_at(pc - 1)
        name, call = symbol.name if symbol else "?", found.calls[row.address]
        ranges.append(Range(row.address, row.address + row.size, name, call))
    assert joined(ranges) == joined(taken.ranges)
    threads = {found.recording.thread(row.thread).tid for row in found.recording.rows.records(0, 1 << 20)}
    assert len(threads) == 3


def test_who_maps_more_than_60_megabytes(taken: Taken) -> None:
    known = sums(taken.ranges)
    report = answer(taken.target, "umausers", "--source", "maps", "--by", "function", "--min", "60M", "--all")
    rows = {row["function"]: row["bytes"] for row in by_name(report)["users"]}
    assert rows == {name: size for name, size in known.items() if size >= 60 << 20}
    assert set(rows) == {"map_anonymous", "alloc_quantum"}
    assert report["totals"]["live_bytes"] == sum(known.values())


def test_the_profile_says_who_called_the_collector(taken: Taken) -> None:
    report = answer(taken.target, "profile", "peek", "^alloc_quantum$", "--source", "maps")
    rows = by_name(report)["peek"]
    callers = {row["context"].strip(): row["calls"] for row in rows if row["role"] == "caller"}
    assert callers == {"parse": 60 << 20, "optimise": 40 << 20}
    assert report["totals"]["total"] == sum(sums(taken.ranges).values())


def test_each_mapping_has_its_maker(taken: Taken) -> None:
    """The largest part of each mapping decides. The others are libc's, the loader's or the auditor's."""
    rows = by_name(answer(taken.target, "maps", "-v"))["mappings"]
    for row in rows:
        parts: Counter[tuple[str, str]] = Counter()
        for one in taken.ranges:
            size = min(one.end, int(row["end"], 16)) - max(one.start, int(row["start"], 16))
            if size > 0:
                parts[one.function, one.call] = max(parts[one.function, one.call], size)
        if parts:
            largest = {name for name, size in parts.items() if size == max(parts.values())}
            assert (row["caller"].partition("+")[0], row["call"]) in largest
        else:
            assert row["call"] in {None, "auditor", "malloc"}
    assert any(row["call"] == "auditor" for row in rows)


def test_a_large_block_of_malloc_is_the_reason_of_its_mapping(tmp_path: Path) -> None:
    """malloc maps a block of 50 MB by itself. A file at the exit has the mappings beside the blocks."""
    source = "#include <stdlib.h>\n__attribute__((noinline)) void *holds(void) { return malloc(50 << 20); }\n"
    source += "void *kept;\nint main(void) { kept = holds(); abort(); }\n"
    (tmp_path / "large.c").write_text(source)
    subprocess.run(["gcc", "-g", "-O1", "-fno-builtin", "-o", "large", "large.c"], cwd=tmp_path, check=True)
    subprocess.run(
        ["sh", "-c", "ulimit -c unlimited; exec ./large"], cwd=tmp_path, env=environment("maps"), check=False
    )
    (core,) = tmp_path.glob("core*")
    rows = by_name(answer(CoreFile(str(core)), "maps", "-v"))["mappings"]
    (row,) = [row for row in rows if row["bytes"] >= 50 << 20]
    assert (row["call"], row["caller"].partition("+")[0]) == ("malloc", "holds")


def test_a_profile_at_exit_has_a_file_of_mappings(tmp_path: Path) -> None:
    source = "#include <sys/mman.h>\nint main(void) { return mmap(0, 7 << 20, 3, 34, -1, 0) == MAP_FAILED; }\n"
    (tmp_path / "maps.c").write_text(source)
    subprocess.run(["gcc", "-g", "-o", "maps", "maps.c"], cwd=tmp_path, check=True)
    words = ("run", "--audit", "maps", "--profile-at-exit", tmp_path / "x.folded", "--", tmp_path / "maps")
    assert dmods(*words).returncode == 0
    (line,) = (tmp_path / "x.maps.folded").read_text().splitlines()
    assert line.endswith(f";main {7 << 20}")


def test_without_the_word_nothing_is_recorded(tmp_path: Path) -> None:
    target = take(tmp_path, "audit").target
    assert recorded_maps(target) is None
    for words in (["umausers", "--source", "maps"], ["profile", "--source", "maps"]):
        with pytest.raises(UserError) as error:
            answer(target, *words)
        assert "--audit audit,maps" in str(error.value.how)
