"""Go programs that only grow: a map and a slice in variables, a slice of one goroutine, and goroutines that wait."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from dmods.corefile.target import CoreFile
from dmods.runtimes.golang.objects import go_types
from fixtures import answers
from tests import corekit
from tests.runtimes.golang.test_heap import HERE, build

pytestmark = pytest.mark.thorough("it builds Go programs with several releases of Go")

SOURCE = (HERE / "gogrowth.go").read_text().splitlines()


class Grown(NamedTuple):
    """Two cores, of a program that grew once and of one that grew twice."""

    cores: list[Path]
    stripped: bool

    @property
    def truth(self) -> dict[str, int]:
        lines = (line.split() for line in self.cores[1].with_name("truth").read_text().splitlines())
        return {what: int(number) for what, number in lines}

    @property
    def typed(self) -> bool:
        """Return whether nearly all objects name their type: since 1.22."""
        types = go_types(CoreFile(str(self.cores[1])))
        return types is not None and types.engine.headers


_SELDOM = pytest.mark.seldom("other builds grow alike")
_BUILDS = (("1.20.14", ""), ("1.26.0", "-s -w"), ("1.27.4", ""))
_OTHERS = (("1.20.14", "-s -w"), ("1.26.0", ""), ("1.27.4", "-s -w"))


@pytest.fixture(
    scope="module", params=[*_BUILDS, *(pytest.param(build, marks=_SELDOM) for build in _OTHERS)], ids="".join
)
def grown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Grown:
    release, flags = request.param
    where = tmp_path_factory.mktemp("gogrowth")
    program = build(release, flags, "gogrowth.go", where, tmp_path_factory.getbasetemp() / f"cache-{release}")
    cores = []
    for times in ("1", "2"):
        (where / times).mkdir()
        cores.append(corekit.kernel_core(program, where / times, "truth", times))
    return Grown(cores, bool(flags))


def line_of(text: str) -> int:
    """Return the number of the one line of the source that has this text."""
    (number,) = (number for number, line in enumerate(SOURCE, 1) if line.strip() == text)
    return number


def crowd(grown: Grown) -> str:
    sends, makes = line_of("results <- number * number"), line_of("go compute(number)")
    return (
        f"wait in main.compute [gogrowth.go:{sends}] (chan send), made in main.handle [gogrowth.go:{makes}]: "
        "their stacks take 20M"
    )


def test_triage_and_suspects_name_leaked_goroutines(grown: Grown) -> None:
    """With their number, their place, and who made them."""
    assert grown.truth["compute"] == 10_000
    findings = answers.by_name(answers.typed("triage", grown.cores[1]))["findings"]
    (found,) = (row for row in findings if row["kind"] == "goroutines")
    assert found["what"].startswith("10,000 of 10,0")
    assert found["what"].endswith(crowd(grown))
    (said,) = (
        row
        for row in answers.by_name(answers.typed("suspects", grown.cores[1], "--least", "1M"))["suspects"]
        if "goroutines" in row["sentence"]
    )
    assert said["sentence"] == f"{found['what']}."
    assert said["count"] == 10_000
    assert said["next"][0] == "goroutines -s 'chan send'"


def test_how_long_they_wait(grown: Grown) -> None:
    truth = grown.truth
    rows = answers.by_name(answers.typed("goroutines", grown.cores[1]))["stacks"]
    (waits,) = (row["waits"] for row in rows if row["top"] == "main.compute")
    assert truth["least"] - 1 <= waits <= truth["most"]
    assert all(row["waits"] is None or row["waits"] <= truth["most"] for row in rows)


def test_suspects_name_the_map(grown: Grown) -> None:
    rows = answers.by_name(answers.typed("suspects", grown.cores[1], "--least", "1M"))["suspects"]
    assert rows[0]["percent"] > 40
    # Old words of the runtime's may lead into the map, too.
    named = re.match(r"`main\.sessions` \(gogrowth\)( \(and \d+ other roots?\))? keeps ", rows[0]["sentence"])
    assert grown.stripped or named
    if grown.typed:
        assert "main.session" in rows[0]["sentence"]


def test_owners_know_who_holds_what(grown: Grown) -> None:
    """A word of an inner frame may be older than its call. Then two frames share what the outer one holds.

    The runtime's queues keep old addresses of spans, which share up to 15 % of the jobs (30 runs with 1.26).
    """
    stacks = answers.by_name(answers.typed("goroutines", grown.cores[1]))["stacks"]
    (number,) = next(row["ids"] for row in stacks if row["top"] == "main.worker")
    rows = answers.by_name(answers.typed("owners", grown.cores[1]))["owners"]
    own = [
        row
        for row in rows
        if row["roots"] and all(re.search(rf" in goroutine {number}\b", root["name"]) for root in row["roots"])
    ]
    jobs = grown.truth["worker"]
    assert 0.75 * jobs * 544 <= sum(row["bytes"] for row in own) <= 1.1 * jobs * 544 + (1 << 16)
    largest = max(own, key=lambda row: row["bytes"])
    assert "main.worker in goroutine" in largest["owner"]
    assert f" in goroutine {number}, frame " in str(answers.typed("pathto", grown.cores[1], largest["through"]))
    if not grown.stripped:
        history = next(row for row in rows if row["owner"] == "gogrowth`main.history")
        assert history["bytes"] >= 0.9 * grown.truth["history"] * 64


def test_objects_have_their_types_everywhere(grown: Grown) -> None:
    if not grown.typed:
        return
    rows = {row["type"]: row for row in answers.by_name(answers.typed("types", grown.cores[1]))["types"]}
    assert rows["main.session"]["count"] == grown.truth["sessions"]
    assert rows["main.event"]["count"] == grown.truth["history"]
    growth = answers.by_name(answers.typed("growth", *grown.cores))["growth"]
    (session,) = (row for row in growth if row["key"] == "main.session")
    assert session["growth_count"] == grown.truth["sessions"] // 2
