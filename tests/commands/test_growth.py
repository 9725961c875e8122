"""growth, compared with the ledger of a program that follows a script: fixtures/userland/grows.c."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UsageError, UserError
from dmods.graph.growth import core_order
from dmods.heap.heap import find_heap
from dmods.heap.ledger import HEAP
from fixtures import answers, audited, growths
from fixtures.growths import Run

#: The usable size of each kind of block.
SIZES = {"held": 56, "lost": 104, "cache": 200, "filling": 296, "request": 392, "frag": 504}
KEYS = ("size", "type", "shape", "arena", "state", "owner", "holder")
#: Who holds each kind of block, as the source has it.
OWNERS = {
    "held": "grows`list",
    "lost": "leaked blocks",
    "cache": "grows`cache",
    "filling": "grows`filling",
    "request": "grows`requests",
    "frag": "grows`fragments",
}


def played(where: Path, *words: str, env: Optional[Mapping[str, str]] = None) -> Run:
    run = growths.play([str(growths.built(where)), *words], where, env or {})
    for (turn, kind), (blocks, size) in run.ledger.items():
        assert size == blocks * SIZES[kind], (turn, kind)
    return run


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(tmp_path_factory.mktemp("grows"), "with fragments")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(tmp_path_factory.mktemp("recorded"), env=audited.environment("audit"))


def grown(cores: Sequence[Path], *words: str) -> dict[str, Any]:
    """Return the object that growth writes. The last core is the target."""
    *base, last = map(str, cores)
    return answers.answer(CoreFile(last), "growth", *base, "--top", "1000000", *words)


def rows_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return answers.by_name(answer)["growth"]


def row_of(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    found = [row for row in rows_of(answer) if text in row["key"]]
    assert len(found) == 1, (text, [row["key"] for row in rows_of(answer)])
    return found[0]


def findings(answer: Mapping[str, Any]) -> list[str]:
    return [row["finding"] for row in answers.by_name(answer)["findings"]]


def check_sums(answer: Mapping[str, Any], cores: Sequence[Path], sysroot: Optional[Path] = None) -> None:
    """Old + growth = new, for each key and in all; and the last core says the same of itself."""
    rows, totals = rows_of(answer), answer["totals"]
    assert rows
    for row in rows:
        assert row["old_bytes"] + row["growth_bytes"] == row["now_bytes"]
        assert row["old_count"] + row["growth_count"] == row["now_count"]
        assert row["each_bytes"][0] == row["old_bytes"]
        assert row["each_bytes"][-1] == row["now_bytes"]
        if totals["same_process"]:
            assert row["old_bytes"] - row["gone_bytes"] + row["new_bytes"] == row["now_bytes"]
            assert row["survived_bytes"] + row["new_bytes"] == row["now_bytes"]
            assert row["kept_bytes"] <= row["new_bytes"]
    for place, core in enumerate(cores):
        heap = find_heap(CoreFile(str(core), sysroot=str(sysroot) if sysroot else None))
        sizes = heap.marks.engine.sizes()
        in_use = sum(size * (live + leaked + own) for size, live, _free, leaked, own in sizes)
        assert sum(row["each_bytes"][place] for row in rows) == in_use


@pytest.mark.quick("holder", "type")
@pytest.mark.parametrize("by", KEYS)
def test_the_sums_are_exact_under_every_key(plain: Run, by: str) -> None:
    check_sums(grown(plain.cores, "--by", by), plain.cores)


@pytest.mark.quick("owner", "stack")
@pytest.mark.parametrize("by", [*KEYS, "stack", "thread"])
def test_the_sums_are_exact_with_records(recorded: Run, by: str) -> None:
    check_sums(grown(recorded.cores, "--by", by), recorded.cores)


@pytest.mark.quick("cache", "frag")
@pytest.mark.parametrize("kind", SIZES)
def test_sizes_are_those_of_the_ledger(plain: Run, kind: str) -> None:
    row = row_of(grown(plain.cores, "--by", "size"), str(SIZES[kind]))
    assert row["each_bytes"] == [plain.bytes(round, kind) for round in range(3)]
    assert row["each_count"] == [plain.ledger[round, kind][0] for round in range(3)]


@pytest.mark.quick("held-'session-")
@pytest.mark.parametrize(
    ("kind", "shape"),
    [("held", "'session-"), ("filling", "'filling-"), ("request", "'GET /pag"), ("cache", "'cached-p")],
)
def test_shapes_are_those_of_the_ledger(plain: Run, kind: str, shape: str) -> None:
    row = row_of(grown(plain.cores), shape)
    assert row["each_bytes"] == [plain.bytes(round, kind) for round in range(3)]


@pytest.mark.quick("lost", "filling")
@pytest.mark.parametrize("kind", ["held", "lost", "cache", "filling", "request"])
def test_stacks_are_those_of_the_ledger(recorded: Run, kind: str) -> None:
    answer = grown(recorded.cores)
    assert answer["totals"]["by"] == "stack"
    row = row_of(answer, f"make_{kind}+")
    assert row["each_bytes"] == [recorded.bytes(round, kind) for round in range(3)]
    assert row["stack"][0]["name"]


def test_records_prove_which_blocks_are_the_same(recorded: Run) -> None:
    answer = grown(recorded.cores)
    # 10 of the cache's blocks are replaced in each round, often by blocks at the same addresses.
    cache = row_of(answer, "make_cache+")
    assert (cache["gone_count"], cache["new_count"], cache["kept_count"]) == (20, 20, 10)
    assert cache["proven_count"] == cache["survived_count"] + cache["kept_count"] == 190
    held = row_of(answer, "make_held+")
    assert (held["gone_count"], held["new_count"], held["kept_count"], held["survived_count"]) == (0, 120, 60, 60)
    request = row_of(answer, "make_request+")
    assert (request["survived_count"], request["kept_count"]) == (0, 0)


def test_threads_and_arenas_are_those_of_the_ledger(recorded: Run) -> None:
    worker = row_of(grown(recorded.cores, "--by", "thread"), "worker")
    assert worker["each_bytes"] == [recorded.bytes(round, "lost") for round in range(3)]
    arena = row_of(grown(recorded.cores, "--by", "arena"), "arena at ")
    assert arena["growth_bytes"] == recorded.growth("lost")


@pytest.mark.quick("held", "lost")
@pytest.mark.parametrize("kind", OWNERS)
def test_owners_are_those_of_the_ledger(plain: Run, kind: str) -> None:
    row = row_of(grown(plain.cores, "--by", "owner"), OWNERS[kind])
    assert row["key"] == OWNERS[kind]
    assert row["each_bytes"] == [plain.bytes(round, kind) for round in range(3)]
    assert row["each_count"] == [plain.ledger[round, kind][0] for round in range(3)]


def test_the_container_that_grows_is_named(plain: Run) -> None:
    """A block has one holder: the block or the root that alone keeps it alive."""
    rows = rows_of(grown(plain.cores, "--by", "holder"))
    for kind in ("cache", "filling", "request", "frag"):
        (row,) = [row for row in rows if row["key"].startswith(f"{OWNERS[kind]} -> ")]
        assert row["each_bytes"] == [plain.bytes(round, kind) for round in range(3)]
    # The list's first node is held by the variable, each other one by the node before it.
    of_list = [row for row in rows if row["key"].endswith("heap-56, text 'session-..', 0, number")]
    assert sorted(row["now_count"] for row in of_list) == [1, plain.ledger[2, "held"][0] - 1]
    said = findings(grown(plain.cores, "--by", "owner"))
    assert said[0].startswith("What is leaked grew by")
    assert said[1].startswith("What grows`list holds grew by")


def test_rates_come_from_the_user_or_from_records(plain: Run, recorded: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_of(grown(plain.cores, "--by", "owner", "--hours", "0.5"), OWNERS["held"])
    assert row["bytes_per_hour"] == 2 * plain.growth("held")
    assert any(" an hour." in text for text in findings(grown(plain.cores, "--hours", "2")))
    # The cores are too close for a rate, unless that is allowed.
    assert grown(recorded.cores)["totals"]["hours"] is None
    monkeypatch.setattr(core_order, "_LEAST_NS", 1)
    answer = grown(recorded.cores)
    assert 0 < answer["totals"]["hours"] * 3600e9 <= recorded.ns
    assert any("hours apart" in note for note in answer["notes"])
    with pytest.raises(UsageError):
        grown(plain.cores, "--hours", "-1")


def test_states_are_kept_apart(plain: Run) -> None:
    answer = grown(plain.cores, "--by", "state")
    assert row_of(answer, "leaked")["each_bytes"] == [plain.bytes(round, "lost") for round in range(3)]
    memory = {row["use"]: row for row in answers.by_name(answer)["memory"]}
    parts = [memory[use] for use in HEAP]
    for field in ("old_bytes", "now_bytes", "growth_bytes"):
        assert sum(row[field] for row in parts) == memory["mapped for the heap"][field]


@pytest.mark.quick("words0")
@pytest.mark.parametrize("words", [(), ("--by", "size")])
def test_the_leaks_come_first_and_caches_are_not_named(plain: Run, words: tuple[str, ...]) -> None:
    answer = grown(plain.cores, *words)
    first, second = rows_of(answer)[:2]
    assert first["growth_bytes"] == plain.growth("lost")
    assert second["growth_bytes"] == plain.growth("held")
    said = [text for text in findings(answer) if "newer than" in text]
    assert len(said) == 2
    assert str(plain.growth("lost")) in said[0]
    assert str(plain.growth("held")) in said[1]
    assert "60 blocks are newer than core.0" in said[1]
    for name in ("cached", "filling", "GET", "296", "392", "200"):
        assert not any(f"'{name}" in text or f"of {name} bytes" in text for text in said)


def test_with_records_the_leaks_are_named_by_their_functions(recorded: Run) -> None:
    said = findings(grown(recorded.cores))
    assert "make_lost" in said[0]
    assert "make_held" in said[1]
    assert len(said) == 2


def test_findings_have_their_parts(recorded: Run) -> None:
    lost, held = answers.by_name(grown(recorded.cores))["findings"]
    for row, how in ((lost, "lost"), (held, "held")):
        assert (row["kind"], row["confidence"], row["bytes"]) == ("growth", "likely", recorded.growth(how))
        (step,) = row["next"]
        assert step == f"whatis {row['address']}"
        assert f"make_{how}" in str(answers.typed("whatis", recorded.cores[-1], row["address"]))
    # A block that leaked is in no cache, but what is held may fill one.
    lost, held = answers.by_name(grown(recorded.cores[:2]))["findings"][:2]
    assert (lost["confidence"], held["confidence"]) == ("likely", "possible")


@pytest.mark.quick("stack")
@pytest.mark.parametrize("by", ["type", "size", "stack"])
def test_it_says_which_kind_leaks(plain: Run, recorded: Run, by: str) -> None:
    run = recorded if by == "stack" else plain
    answer = grown(run.cores, "--by", by)
    lost, held = findings(answer)[:2]
    lost_row, held_row = rows_of(answer)[:2]
    assert lost_row["growth_bytes"] == lost_row["leaked_bytes"] - run.bytes(0, "lost") == run.growth("lost")
    assert ". It leaks: nothing points to " in lost
    assert held_row["growth_bytes"] == run.growth("held")
    assert held_row["leaked_bytes"] == 0
    assert "has not leaked" in held


def test_fragmentation_is_called_so(plain: Run) -> None:
    said = [text for text in findings(grown(plain.cores[:2])) if "fragmentation" in text]
    assert len(said) == 1
    assert "malloc_trim" in said[0]
    # From core.1 to core.2 the memory of the heap does not grow.
    assert not any("fragmentation" in text for text in findings(grown(plain.cores[1:])))


def test_two_cores_get_a_caveat(plain: Run) -> None:
    notes = grown(plain.cores[:2])["notes"]
    assert any("give a third" in note for note in notes)
    assert any("probably the same" in note for note in notes)
    assert any(note.startswith("noise: ") for note in notes)


def test_cores_of_two_runs_are_compared_without_addresses(plain: Run, recorded: Run) -> None:
    cores = (plain.cores[0], recorded.cores[2])
    answer = grown(cores)
    assert answer["totals"]["same_process"] is False
    assert any("AT_RANDOM" in note for note in answer["notes"])
    check_sums(answer, cores)
    row = row_of(answer, "'session-")
    assert row["each_bytes"] == [plain.bytes(0, "held"), recorded.bytes(2, "held")]
    assert row["new_bytes"] is None
    assert row["gone_bytes"] is None
    owners = grown(cores, "--by", "owner")
    check_sums(owners, cores)
    row = row_of(owners, OWNERS["held"])
    assert row["each_bytes"] == [plain.bytes(0, "held"), recorded.bytes(2, "held")]
    # No address, and no number of a thread.
    assert not any(re.search(r"\b[0-9a-f]{8,}\b|thread \d", each["key"]) for each in rows_of(owners))


def test_cores_in_the_wrong_order_are_named(plain: Run, recorded: Run, tmp_path: Path) -> None:
    """The program dies after each round: core.0 is the oldest. Records tell so for sure, the files' times perhaps."""
    for run, sure in ((plain, False), (recorded, True)):
        assert not any("order" in note for note in grown(run.cores)["notes"])
        for order in ([2, 1, 0], [0, 2, 1], [1, 0]):
            first = grown([run.cores[place] for place in order])["notes"][0]
            assert "order" in first
            assert ", ".join(f"core.{place}" for place in sorted(order)) in first
            assert "oldest first" in first
            assert ("perhaps" in first) is not sure
    # A copy without the times of the files: the records still know.
    for run, said in ((plain, 0), (recorded, 1)):
        copies = [tmp_path / f"copy.{place}" for place in (1, 0)]
        for place, copy in zip((1, 0), copies):
            copy.write_bytes(run.cores[place].read_bytes())
            os.utime(copy, (1e9, 1e9))
        assert sum("order in which" in note for note in grown(copies)["notes"]) == said


def test_another_build_and_another_program_are_named(plain: Run, tmp_path: Path) -> None:
    program = growths.built(tmp_path, "-O1")
    other = growths.play([str(program)], tmp_path, {})
    note = grown([plain.cores[0], other.cores[2]])["notes"][0]
    identity = re.search(r"Build ID: (\w{12})", answers.finished("readelf", "-n", program).stdout)
    assert identity is not None
    assert note.startswith("core.0 cannot be compared with core.2 block by block: it is of another build of grows")
    assert f"not {identity[1]}" in note
    named = tmp_path / "shrinks"
    program.rename(named)
    other = growths.play([str(named)], tmp_path, {})
    note = grown([plain.cores[0], other.cores[2]])["notes"][0]
    assert "another program: grows, not shrinks" in note


def test_the_shell_takes_the_newest_core_last(plain: Run) -> None:
    typed = answers.typed("growth", *plain.cores, "--by", "size", "--top", "1000")
    assert typed["target"] == str(plain.cores[-1])
    assert rows_of(typed) == rows_of(grown(plain.cores, "--by", "size"))
    text = answers.printed("growth", *plain.cores)
    assert "OLD" in text
    assert "Blocks in use: " in text


def test_a_truncated_core_keeps_the_rest_of_the_answer(plain: Run, tmp_path: Path) -> None:
    data = plain.cores[0].read_bytes()
    for part in (9, 6, 3):
        short = tmp_path / f"short.{part}"
        short.write_bytes(data[: len(data) * part // 10])
        for cores in ((short, *plain.cores[1:]), (*plain.cores[1:], short)):
            if not find_heap(CoreFile(str(short))).found:
                with pytest.raises(UserError, match="no heap"):
                    grown(cores)
                continue
            answer = grown(cores)
            check_sums(answer, cores)
            assert any("truncated" in note for note in answer["notes"])


def test_what_growth_refuses(plain: Run, tmp_path: Path) -> None:
    last = CoreFile(str(plain.cores[2]))
    with pytest.raises(UsageError):
        answers.report(last, "growth", str(plain.cores[2]))
    with pytest.raises(UsageError):
        answers.report(last, "growth", str(plain.cores[0]), str(plain.cores[0]))
    with pytest.raises(UserError):
        answers.report(last, "growth", str(plain.cores[0]), "--by", "stack")
    with pytest.raises(UserError):
        answers.report(last, "growth", str(tmp_path / "nothing"))
