"""Rust's records that end in a trait object or a slice (`Arc<Mutex<dyn T>>`): the program tells the type of each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.graph.typed import compared, dump, graph_of

_RC = ("alloc::rc::RcInner<{}>", "alloc::rc::RcBox<{}>")
#: Older libraries have other names for what Rc allocates, and for the locks.
_LOCK = ("std::sync::poison::rwlock::RwLock<{}>", "std::sync::rwlock::RwLock<{}>")
_NAMES: dict[str, tuple[str, ...]] = {
    "ARC": tuple(f"alloc::sync::ArcInner<std::sync::{part}mutex::Mutex<{{}}>>" for part in ("poison::", "")),
    "RC": tuple(outer.format("core::cell::RefCell<{}>") for outer in _RC),
    "LOCK": _LOCK,
    "MOVED": tuple(f"alloc::sync::ArcInner<{lock}>" for lock in _LOCK),
    "CELL": ("core::cell::UnsafeCell<{}>",),
    "NAMED": ("tails::Named<{}>",),
    "DEEP": ("alloc::sync::ArcInner<tails::Deep<{}>>",),
}


def _names() -> dict[str, tuple[str, ...]]:
    slices = {"ARC": "[u32]", "RC": "[tails::Toy]", "LOCK": "[tails::Toy]"}
    found: dict[str, tuple[str, ...]] = {"TEXT": ("u8[]",)}
    for kind, names in _NAMES.items():
        for what in ("Dog", "Big", "Flat"):
            found[f"{kind}({what})"] = tuple(name.format(f"tails::{what}") for name in names)
        if kind in slices:
            found[f"{kind}(slice)"] = tuple(name.format(slices[kind]) for name in names)
    found["NAMED(slice)"] = tuple(name.format("tails::Named<[u8]>") for name in _RC)
    return found


@pytest.mark.thorough("it compiles a Rust program")
@pytest.mark.parametrize("flags", [("-O",), ()], ids=["optimized", "plain"])
def test_records_that_end_in_a_trait_object_or_a_slice(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """The vtable says what is at the end. A record that only weak pointers hold says nothing of other memory."""
    dumped = dump(tmp_path, ["rustc", "-g", "--edition", "2021", "-Awarnings", *flags], "tails.rs")
    again = [block for block in dumped.blocks if block.type == "u64[]"]
    assert len(again) == 320
    found = compared(graph_of(dumped.core), dumped.blocks, _names())
    assert found.wrong == []
    assert Counter(found.missing) == Counter()
