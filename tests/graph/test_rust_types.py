"""The types of a Rust program's blocks, compared with what it said of them: trait objects, B-trees, hash tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.graph.typed import compared, dump, graph_of

_BOX = "alloc::boxed::Box<dyn {}, alloc::alloc::Global>[]"
_ARC = "alloc::sync::ArcInner<{}>"
_TABLE = (
    "std::collections::hash::map::HashMap<u64, alloc::sync::Arc<containers::Session, alloc::alloc::Global>, "
    "std::hash::random::RandomState, alloc::alloc::Global>"
)


def _counted(inner: str) -> tuple[str, str]:
    return (f"alloc::rc::RcInner<{inner}>", f"alloc::rc::RcBox<{inner}>")


#: The names of what the program calls by a short name. Older libraries have other names for what Rc allocates.
NAMES: dict[str, tuple[str, ...]] = {
    "TEXT": ("u8[]",),
    "TAGS": ("alloc::borrow::Cow<str>[]",),
    "DYNS": (_BOX.format("containers::Animal"),),
    "ANYS": (_BOX.format("core::any::Any"),),
    "FUNCS": (_BOX.format("core::ops::function::Fn<(u64), Output=u64>"),),
    "ARCDYNS": (
        "alloc::sync::Arc<(dyn containers::Animal + core::marker::Send + core::marker::Sync), alloc::alloc::Global>[]",
    ),
    "ARC(Dog)": (_ARC.format("containers::Dog"),),
    "ARC(User)": (_ARC.format("containers::User"),),
    "ARC(Session)": (_ARC.format("containers::Session"),),
    "ARC(str)": (_ARC.format("str"),),
    "ARC(RwLock)": tuple(_ARC.format(f"std::sync::{part}rwlock::RwLock<{_TABLE}>") for part in ("poison::", "")),
    "ARCSTRS": ("alloc::sync::Arc<str, alloc::alloc::Global>[]",),
    "RC(Tree)": _counted("containers::Tree"),
    "RC(Cell)": _counted("core::cell::Cell<u64>"),
    "RCS(Tree)": ("alloc::rc::Rc<containers::Tree, alloc::alloc::Global>[]",),
    "CELLS": ("alloc::rc::Rc<core::cell::Cell<u64>, alloc::alloc::Global>[]",),
    "RC(slice)": _counted("[containers::Key]"),
    "HEAP": ("(u64, containers::Key)[]",),
    "OPTS": ("core::option::Option<alloc::boxed::Box<containers::Key, alloc::alloc::Global>>[]",),
    "OPTSTR": ("core::option::Option<alloc::string::String>[]",),
}


@pytest.mark.thorough("it compiles a Rust program")
@pytest.mark.parametrize("flags", [("-O",), ()], ids=["optimized", "plain"])
def test_trait_objects_and_trees_of_rust(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """The vtable of a trait object says its type, and the height of a B-tree says which nodes have children."""
    argv = ["rustc", "-g", "--edition", "2021", "-Awarnings", *flags]
    dumped = dump(tmp_path, argv, "containers.rs")
    graph = graph_of(dumped.core)
    closures = dumped.of("CLOSURE")
    others = [block for block in dumped.blocks if block.type != "CLOSURE"]
    found = compared(graph, others, NAMES)
    assert found.wrong == []
    assert Counter(found.missing) == Counter()
    # A closure has no name that a program could tell.
    blocks = [graph.heap.block_at(closure.address) for closure in closures]
    (name,) = {block is not None and graph.name(block) for block in blocks}
    assert str(name).startswith("containers::main::{closure")
    rows = answers.answer(CoreFile(str(dumped.core)), "types", "--top", "1000")["tables"][0]["rows"]
    kinds = Counter[str]()
    for row in rows:
        kinds[row["type"]] += row["count"]
    node = "alloc::collections::btree::node::{}<u64, alloc::collections::btree::set_val::SetValZST>"
    leaves, inner = kinds[node.format("LeafNode")], kinds[node.format("InternalNode")]
    # A set of the numbers to 500: nodes have 5 to 11 of them, and nodes with children have 6 to 12.
    assert 500 / 12 <= leaves <= 500 / 5
    assert leaves / 12 <= inner <= leaves / 5
    assert "T" not in kinds
