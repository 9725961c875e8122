"""The growth since an older core, in every form: old and growth make new, as the program counted both."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from dmods.errors import UsageError
from fixtures import audited
from fixtures.cores import CoreSet
from tests.profile.test_profile import Row, asked, ledger, pprof, top, written

Names = Sequence[str]  # names, root first
Stacks = Iterable[tuple[Names, int]]


def cums(stacks: Stacks) -> Counter[str]:
    """Return the value of each function. A function counts once for a stack."""
    found: Counter[str] = Counter()
    for path, value in stacks:
        for name in set(path):
            found[name] += value
    return found


def folded(path: Path) -> tuple[Stacks, Stacks]:
    """Return the stacks before, and now."""
    rows = [line.rsplit(" ", 2) for line in path.read_text().splitlines()]
    stacks = [(names.split(";"), int(old), int(new)) for names, old, new in rows]
    return [(names, old) for names, old, _new in stacks], [(names, new) for names, _old, new in stacks]


def speedscope(path: Path) -> dict[str, Counter[str]]:
    whole = json.loads(path.read_text())
    names = [frame["name"] for frame in whole["shared"]["frames"]]
    return {
        one["name"]: cums(([names[place] for place in stack], n) for stack, n in zip(one["samples"], one["weights"]))
        for one in whole["profiles"]
    }


def drawn(path: Path) -> dict[Names, tuple[int, int]]:
    """Return what the frames of a picture say: before and now, by the names from the root on."""
    text = path.read_text()
    frame = r'data-p="(-?\d+)" .*?<title>(.*?): [+-]?\d+ bytes.*?: before (\d+) bytes.*?, now (\d+) bytes'
    frames = [(int(at), name, int(old), int(new)) for at, name, old, new in re.findall(frame, text)]
    assert len(frames) == text.count('role="treeitem"')
    paths: list[tuple[str, ...]] = []
    for at, name, _old, _new in frames:
        paths.append((*paths[at], name) if at >= 0 else ())
    return {path: (old, new) for path, (_at, _name, old, new) in zip(paths, frames)}


def prefixes(stacks: Stacks) -> Counter[Names]:
    """Return the value of each beginning of a stack, that is of each frame of a picture."""
    found: Counter[Names] = Counter()
    for path, value in stacks:
        for depth in range(len(path) + 1):
            found[tuple(path[:depth])] += value
    return found


def of(found: Counter[str], names: Iterable[str]) -> dict[str, int]:
    return {name: found[name] for name in names}


@pytest.fixture(scope="module")
def both() -> tuple[CoreSet, CoreSet]:
    return audited.take("profiled"), audited.take("profiled", mode="more")


@pytest.mark.thorough("it takes two cores and runs go tool pprof")
def test_old_and_growth_make_new_in_every_form(both: tuple[CoreSet, CoreSet], tmp_path: Path) -> None:
    old, new = both
    before, after = ({name: row.cum for name, row in ledger(made).items()} for made in both)
    grown = {name: after[name] - before[name] for name in after}
    assert any(value > 0 for value in grown.values())
    base = ("--base", str(old.core))

    rows = top(new, *base)
    assert {name: rows.get(name, Row(0, 0)).cum for name in after} == grown
    read = pprof(written(new, tmp_path, "grown.pb.gz", *base))
    assert {name: read.get(name, Row(0, 0)).cum for name in after} == grown
    files = [written(made, tmp_path, f"{name}.pb.gz") for name, made in (("old", old), ("new", new))]
    assert pprof("-diff_base", *files) == read == rows

    was, now = folded(written(new, tmp_path, "grown.folded", *base))
    assert of(cums(was), after) == before
    assert of(cums(now), after) == after
    for stacks, made in ((was, old), (now, new)):
        assert sum(value for _path, value in stacks) == asked(made)["totals"]["total"]
    for name in ("grown.svg", "grown.html"):
        frames = drawn(written(new, tmp_path, name, *base))
        assert len(frames) > len(after)
        assert frames == {path: (prefixes(was)[path], prefixes(now)[path]) for path in frames}

    scope = speedscope(written(new, tmp_path, "grown.speedscope.json", *base))
    assert of(scope["base"], after) == before
    assert of(scope["inuse_space"], after) == after
    assert {name: scope["grew"][name] - scope["shrank"][name] for name in after} == grown


@pytest.mark.thorough("it takes two cores")
def test_a_text_without_negative_numbers_is_refused(both: tuple[CoreSet, CoreSet], tmp_path: Path) -> None:
    """Before any work: the base is not even opened."""
    with pytest.raises(UsageError, match=r"a \.heap file has no negative numbers") as refused:
        written(both[1], tmp_path, "grown.heap", "--base", str(tmp_path / "none"))
    assert not list(tmp_path.iterdir())
    assert "x.pb.gz" in refused.value.how
