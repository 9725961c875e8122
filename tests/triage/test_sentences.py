"""Sentences that triage puts together from parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dmods.triage.checks.leaks import _remedy
from dmods.triage.fleet.report import _most


def _bucket(name: str, dumps: int) -> Any:
    return SimpleNamespace(signature=name, dumps=range(dumps))


def test_most_is_said_only_where_it_is_so() -> None:
    assert _most([_bucket("abort | f", 3), _bucket("null | g", 1)], 4) == "Most died of abort | f: 3 (75%)."
    assert "Most" not in _most([_bucket("abort | f", 2), _bucket("a | g", 1), _bucket("b | h", 1)], 4)
    tie = _most([_bucket(name, 1) for name in "abcd"], 4)
    assert tie == "No place has more dumps than the others: 4 have 1 dump each (25%)."


def test_a_leak_without_a_known_caller_does_not_name_one() -> None:
    unknown: Any = SimpleNamespace(record=None)
    known: Any = SimpleNamespace(record=1, caller=SimpleNamespace(text="make+0x15"))
    assert _remedy(known, True) == "free what make+0x15 allocates"
    assert "caller allocates" not in _remedy(unknown, True)
    assert "caller allocates" not in _remedy(unknown, False)
