"""Types that counts prove: arrays of numbers, strings behind headers. And what lies behind the end of an array."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.graph.typed import compared, dump, graph_of


@pytest.mark.thorough("it compiles a program")
@pytest.mark.parametrize("flags", [("-O0", "-g"), ("-O2", "-gdwarf-4")], ids=" ".join)
def test_counts_prove_types(tmp_path: Path, flags: tuple[str, ...]) -> None:
    dumped = dump(tmp_path, ["gcc", *flags], "counted.c")
    graph = graph_of(dumped.core)
    found = compared(graph, dumped.blocks, {})
    assert found.wrong == []
    assert found.missing == []
    # A struct of another library may have characters at the same offset: then such a text has no name.
    texts = [graph.heap.block_at(block.address) for block in dumped.of("char[]") if block.may]
    assert len(texts) == 62
    assert sum(block is not None and graph.name(block) == "char[]" for block in texts) >= 20


@pytest.mark.thorough("it compiles a Rust program")
@pytest.mark.parametrize("flags", [("-O",), ()], ids=["optimized", "plain"])
def test_the_containers_and_enums_of_rust(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """The buffers of Vec, String and HashMap are behind pointers to u8: the arguments say what they hold."""
    dumped = dump(tmp_path, ["rustc", "-g", "--edition", "2021", "-Awarnings", *flags], "typed.rs")
    names = {
        "TEXT": ("u8[]",),
        "ARC(Point)": ("alloc::sync::ArcInner<typed::Point>",),
        "RC(Order)": ("alloc::rc::RcInner<typed::Order>", "alloc::rc::RcBox<typed::Order>"),
    }
    found = compared(graph_of(dumped.core), dumped.blocks, names)
    assert found.wrong == []
    assert Counter(found.missing) == Counter()
