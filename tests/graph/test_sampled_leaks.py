"""In a large heap, the types of leaks are those of some blocks of each group: findleaks, with and without that."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.types import typed_rows
from dmods.graph.types.block_kinds import Types
from dmods.graph.types.typegraph import SampledLeaks, sampled_leaks
from dmods.heap.heap import find_heap
from fixtures import answers
from tests.graph.typed import Dumped, dump
from tools.bench import debug

_BLOCKS = 30_000
_SESSIONS = {"c": "struct session", "c++": "Session", "rust": "debugged::Session"}
_OF_SAMPLE = "some blocks of the group"
_COUNTED = ("look-ups", "reads", "words", "taken")


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_rows, "LARGE", 0)


@pytest.fixture(scope="module")
def leaked(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    return dump(tmp_path_factory.mktemp("leaked"), ["g++", "-g", "-O1"], "leaked.cc")


def found(core: Path) -> tuple[dict[str, int], list[str]]:
    """Return how many direct leaks of each type or shape there are, and the notes."""
    answer = answers.answer(CoreFile(str(core)), "findleaks")
    out: dict[str, int] = {}
    for row in answers.by_name(answer)["leaks"]:
        out[row["type"]] = out.get(row["type"], 0) + row["leaked"]
    return out, answer["notes"]


@pytest.mark.quick("c", "c++")
@pytest.mark.parametrize("name", debug.LANGUAGES)
def test_a_large_group_has_the_type_of_its_sample(tmp_path: Path, sampled: None, name: str) -> None:
    core = debug.Cores(tmp_path).make(name, _BLOCKS, tmp_path)
    rows, notes = found(core.core)
    assert sum(rows.values()) == core.truth["direct_count"]
    # In C, the first ones look unlike the others: their texts are shorter.
    assert rows[_SESSIONS[name]] >= 0.99 * core.truth["direct_count"]
    assert len([note for note in notes if _OF_SAMPLE in note]) == 1


def test_a_sample_says_what_all_blocks_say(leaked: Dumped, sampled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    some, _notes = found(leaked.core)
    monkeypatch.setattr(typed_rows, "LARGE", 1 << 40)
    every, notes = found(leaked.core)
    assert not [note for note in notes if _OF_SAMPLE in note]
    assert sum(some.values()) == sum(every.values())
    told = {block.type for block in leaked.blocks}
    typed = {name: count for name, count in every.items() if name in told}
    named = {name: count for name, count in some.items() if name in told}
    # A Point and other blocks of numbers may share a row. It has no type then.
    assert {"User", "Request", "Conn", "Node", "Branch"} & typed.keys() <= named.keys()
    assert named == pytest.approx({name: typed[name] for name in named}, rel=0.03)
    assert {"User", "Request", "Conn"} <= named.keys()


def work(where: Path, blocks: int) -> SampledLeaks:
    where.mkdir()
    core = debug.Cores(where).make("c", blocks, where)
    heap = find_heap(CoreFile(str(core.core)))
    made = sampled_leaks(heap, Types([heap], direct=True).kinds)
    assert made is not None
    return made


def test_the_work_for_the_types_of_leaks_does_not_grow_with_the_heap(tmp_path: Path) -> None:
    """The heap is four times as large. What is asked of it stays the same."""
    small, large = work(tmp_path / "small", _BLOCKS), work(tmp_path / "large", 4 * _BLOCKS)
    for made in (small, large):
        assert {typed[0] for _group, typed, _sampled in made.groups if typed is not None} == {"struct session"}
        assert sum(group.count for group, typed, _sampled in made.groups if typed is None) <= 1
    assert min(small.work) > 0
    for name, before, after in zip(_COUNTED, small.work, large.work):
        # The same number of objects lies in more pieces of memory, each of which is read once.
        most = large.work[0] if name == "reads" else 1.5 * before
        assert after <= most, (name, before, after)
