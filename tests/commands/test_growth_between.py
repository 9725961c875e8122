"""growth where the cores differ in more than their blocks: damage, other processes, an allocator that came later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest
from elftools.elf.elffile import ELFFile

from dmods.corefile.target import CoreFile
from dmods.graph.growth.same_process import difference
from dmods.modules.auxv import AT_RANDOM
from fixtures import answers, growths
from fixtures.growths import Run
from tests.commands.test_growth import KEYS, OWNERS, check_sums, findings, grown, row_of, rows_of

pytestmark = pytest.mark.thorough("cores of its own; test_growth.py is quick")


def static(where: Path) -> Run:
    """Return a run of a static program: its data and its main arena lie before all other memory, in the file too."""
    return growths.play([str(growths.built(where, "-static"))], where, {})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return static(tmp_path_factory.mktemp("grows"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return static(tmp_path_factory.mktemp("other"))


def cut(core: Path, where: Path) -> Path:
    """Return a copy of the core that ends before the second arena's first leak: what a full disk leaves."""
    (table, *_) = answers.answer(CoreFile(str(core)), "walk", "leakbuf")["tables"]
    address = int(table["rows"][0]["address"], 16)
    with core.open("rb") as file:
        loads = [segment.header for segment in ELFFile(file).iter_segments("PT_LOAD")]
    (at,) = [s.p_offset + address - s.p_vaddr for s in loads if s.p_vaddr <= address < s.p_vaddr + s.p_filesz]
    where.write_bytes(core.read_bytes()[:at])
    return where


def notes(answer: dict[str, Any], name: str) -> list[str]:
    return [note for note in answer["notes"] if note.startswith(name)]


def test_a_middle_core_without_a_heap_is_left_out(run: Run, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(run.cores[1].read_bytes()[: 1 << 13])  # no more than its notes
    answer = grown((run.cores[0], short, run.cores[2]))
    assert answer["totals"] == grown((run.cores[0], run.cores[2]))["totals"]
    (reason,) = (note for note in answers.answer(CoreFile(str(short)), "findleaks")["notes"] if "no heap" in note)
    assert f"short is left out: {reason}" in answer["notes"]
    assert rows_of(answer) == rows_of(grown((run.cores[0], run.cores[2])))


def test_a_middle_core_of_another_process_is_left_out(run: Run, other: Run) -> None:
    answer = grown((run.cores[0], other.cores[1], run.cores[2]))
    assert answer["totals"]["same_process"]
    assert rows_of(answer) == rows_of(grown((run.cores[0], run.cores[2])))
    assert any("is left out" in note and "AT_RANDOM" in note for note in answer["notes"])


def test_cores_of_three_processes_are_compared_without_addresses(run: Run, other: Run, tmp_path: Path) -> None:
    cores = (run.cores[0], other.cores[1], static(tmp_path).cores[2])
    answer = grown(cores)
    assert not answer["totals"]["same_process"]
    check_sums(answer, cores)
    assert row_of(answer, "'session-")["each_bytes"] == run.each("held")


@pytest.mark.parametrize("by", KEYS)
def test_sums_are_exact_with_a_truncated_middle(run: Run, tmp_path: Path, by: str) -> None:
    short = cut(run.cores[1], tmp_path / "short")
    cores = (run.cores[0], short, run.cores[2])
    check_sums(grown(cores, "--by", by), cores)


def test_a_truncated_middle_hides_no_leak_and_accuses_no_cache(run: Run, tmp_path: Path) -> None:
    """The second thread's arena and the stacks lie behind the cut, and so do the random bytes of the process."""
    short = cut(run.cores[1], tmp_path / "short")
    target = CoreFile(str(short))
    assert not target.image().read(target.auxv[AT_RANDOM], 16)
    answer = grown((run.cores[0], short, run.cores[2]))
    assert answer["totals"]["same_process"]
    whole = grown((run.cores[0], run.cores[2]))
    for key in ("growth_bytes", "new_bytes", "gone_bytes", "survived_bytes"):
        assert answer["totals"][key] == whole["totals"][key]
    said = [text for text in findings(answer) if "grew by" in text]
    assert len(said) == 2
    assert f"grew by {run.growth('lost')} bytes" in said[0]
    assert f"grew by {run.growth('held')} bytes" in said[1]
    assert any("but may be in use" in note for note in notes(answer, "short"))
    held = row_of(answer, "'session-")
    assert (held["survived_count"], held["new_count"], held["kept_count"]) == (60, 120, 60)


@pytest.mark.parametrize("place", [0, 2])
def test_a_truncated_end_says_what_that_means(run: Run, tmp_path: Path, place: int) -> None:
    short = cut(run.cores[place], tmp_path / "short")
    cores = [short if core == run.cores[place] else core for core in run.cores]
    answer = grown(cores)
    check_sums(answer, cores)
    means = "counts as growth" if place == 0 else "counts as gone"
    assert any(means in note for note in notes(answer, "short"))


def test_places_tell_processes_apart_without_their_random_bytes(run: Run, other: Run, tmp_path: Path) -> None:
    def lacking(core: Path, name: str) -> CoreFile:
        return CoreFile(str(cut(core, tmp_path / name)))

    one, later, foreign = lacking(run.cores[0], "a"), lacking(run.cores[2], "b"), lacking(other.cores[2], "c")
    assert difference(one, later) is None
    assert difference(one, CoreFile(str(run.cores[1]))) is None
    assert "at other addresses" in str(difference(one, foreign))


LATER: Sequence[tuple[Optional[str], str]] = [(None, "host"), ("bullseye", "host")]


@pytest.fixture(scope="module", params=LATER, ids=["glibc", "jemalloc"])
def later(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return growths.with_second(*request.param, tmp_path_factory.mktemp("later"))


@pytest.mark.parametrize("by", KEYS)
def test_sums_are_exact_where_an_allocator_came_later(later: Run, by: str) -> None:
    check_sums(grown(later.cores, "--by", by), later.cores)


def test_an_allocator_that_came_later_is_growth(later: Run) -> None:
    owners = grown(later.cores, "--by", "owner")
    for kind, name in {**OWNERS, "foreign": "grows`foreign"}.items():
        (row,) = [row for row in rows_of(owners) if row["key"] == name]
        assert row["each_bytes"] == later.each(kind)
    answer = grown(later.cores)
    assert row_of(answer, "'foreign-")["each_bytes"] == later.each("foreign")
    said = [text for text in findings(answer) if "newer than" in text]
    assert len(said) == 3
    assert str(later.growth("foreign")) in said[1]  # what leaks comes first, then the largest


def test_arenas_keep_their_names_where_an_allocator_came_later(later: Run) -> None:
    """The second jemalloc may be first by address: its arenas are not those of the first."""
    rows = {row["key"]: row["each_bytes"] for row in rows_of(grown(later.cores, "--by", "arena"))}
    came = {key: each for key, each in rows.items() if each[0] == 0 and each[1] > 0}
    (key,) = [key for key, each in came.items() if each[1] >= later.bytes(1, "foreign")]
    assert key.startswith("je") or "libjemalloc.so.2" in key
    stays = [each for key, each in rows.items() if key not in came]
    least = sum(later.bytes(0, kind) for kind in later.kinds)
    assert sum(each[0] for each in stays) >= least
    assert sum(each[2] for each in stays) >= sum(later.bytes(2, kind) for kind in later.kinds if kind != "foreign")
