"""The names that a user means by a short spelling of a type."""

from __future__ import annotations

import pytest

from dmods.base.class_names import named_alike

VECTOR = "alloc::vec::Vec<prog::Order, alloc::alloc::Global>"
TABLE = "std::collections::hash::map::HashMap<u64, prog::Order, std::hash::random::RandomState, alloc::alloc::Global>"
NAMES = [VECTOR, f"{VECTOR}[]", TABLE, "prog::Order", "alloc::sync::ArcInner<prog::Order>", "std::vector<ns::Order>"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Vec<Order>", [VECTOR]),
        ("Vec<prog::Order>", [VECTOR]),
        ("Vec<Order>[]", [f"{VECTOR}[]"]),
        ("HashMap<u64, Order>", [TABLE]),
        ("ArcInner<Order>", ["alloc::sync::ArcInner<prog::Order>"]),
        ("vector<Order>", ["std::vector<ns::Order>"]),
        ("Order", ["prog::Order"]),
        ("HashMap", [TABLE]),
        (VECTOR, [VECTOR]),
        ("Vec<Key>", []),
        ("HashMap<Order>", []),
    ],
)
def test_short_spellings(text: str, meant: list[str]) -> None:
    assert named_alike(text, NAMES) == meant
