"""Leaked blocks have the types of live objects that look alike: tests/graph/leaked.cc tells the types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from dmods.graph.types.typegraph import ALIKE, TypeGraph
from dmods.heap.block import DIRECT, INDIRECT
from fixtures import answers
from tests.graph.typed import Dumped, compared, dump, graph_of
from tests.quick import only

_ALONE = ("User", "Request", "Conn", "Node", "Branch", "Point", "Circle")  # no other type has such members
_RUST = {
    "USER": ("alloc::sync::ArcInner<leaked::User>",),
    "ORDER": ("leaked::Order",),
    "NODE": (
        "alloc::rc::RcInner<core::cell::RefCell<leaked::Node>>",
        "alloc::rc::RcBox<core::cell::RefCell<leaked::Node>>",
    ),
}


def named(graph: TypeGraph, dumped: Dumped, kinds: Sequence[str], evidence: set[str]) -> dict[str, tuple[int, int]]:
    """Return how many blocks of each kind have leaked, and how many of these have a type. Notes the ``evidence``."""
    leaked: Counter[str] = Counter()
    typed: Counter[str] = Counter()
    for told in dumped.blocks:
        block = graph.heap.block_at(told.address)
        assert block is not None
        if told.type in kinds and block.state in (DIRECT, INDIRECT):
            claim = graph.at(block)
            leaked[told.type] += 1
            typed[told.type] += claim is not None
            evidence.add(f"{told.type} {claim.evidence}" if claim is not None else "")
    return {kind: (leaked[kind], typed[kind]) for kind in kinds}


@pytest.mark.parametrize("flags", only(["-O1"], ["-O1", "-O0", "-O3"]))
def test_leaked_objects_have_the_types_of_live_ones(tmp_path: Path, flags: str) -> None:
    dumped = dump(tmp_path, ["g++", "-g", *flags.split()], "leaked.cc")
    graph = graph_of(dumped.core)
    assert compared(graph, dumped.blocks, {}).wrong == []
    evidence: set[str] = set()
    for kind, (leaked, typed) in named(graph, dumped, _ALONE, evidence).items():
        assert leaked >= 150, kind
        # Little of an object says what it is if most of it is 0.
        assert typed >= 0.97 * leaked, (kind, typed, leaked)
    # A Circle is the only struct that explains its pointers.
    assert {f"{kind} {ALIKE}" for kind in _ALONE if kind != "Circle"} <= evidence


def test_findleaks_names_what_leaked_and_says_how_it_knows(tmp_path: Path) -> None:
    dumped = dump(tmp_path, ["g++", "-g", "-O1"], "leaked.cc")
    answer = answers.typed("findleaks", dumped.core)
    rows = [row for row in answers.by_name(answer)["leaks"] if row["type"] == "Request"]
    assert sum(row["leaked"] for row in rows) == 500  # malloc gave one of them a larger block
    (note,) = [note for note in answer["notes"] if "look alike" in note]
    assert "`whattype ADDR`" in note
    asked = answers.by_name(answers.typed("whattype", dumped.core, rows[0]["buffer"]))["type"][0]
    assert (asked["type"], asked["evidence"], asked["confidence"]) == ("Request", ALIKE, "possible")
    live = asked["source"].removeprefix("Request ").removesuffix(", which looks like it")
    other = answers.by_name(answers.typed("whattype", dumped.core, live))["type"][0]
    assert (other["type"], other["evidence"]) == ("Request", "typed pointer")


@pytest.mark.thorough("it compiles a Rust program")
@pytest.mark.parametrize("flags", [("-O",), ()], ids=["optimized", "plain"])
def test_values_of_rust(tmp_path: Path, flags: tuple[str, ...]) -> None:
    command = ["rustc", "-g", "--edition", "2021", "-Awarnings", "--crate-name", "leaked", *flags]
    dumped = dump(tmp_path, command, "leaked.rs")
    graph = graph_of(dumped.core)
    assert compared(graph, dumped.blocks, _RUST).wrong == []
    for kind, (leaked, typed) in named(graph, dumped, list(_RUST), set()).items():
        assert leaked >= 190, kind
        assert typed >= 0.97 * leaked, (kind, typed, leaked)
