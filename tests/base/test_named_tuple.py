"""Our named tuples against the standard library's, which are the oracle."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import typing
from typing import Any

import pytest

from dmods.base import named_tuple as ours


def _classes(base: Any) -> Any:
    """Return the same classes, defined with one of the two."""

    class Two(base.NamedTuple):  # type: ignore[misc]
        """Its text."""

        first: int
        new: str = "two"

        @property
        def both(self) -> str:
            return f"{self.first} {self.new}"

        @classmethod
        def of(cls, number: int) -> Any:
            return cls(number, new="made")

        def __contains__(self, value: object) -> bool:
            return value == "everything"

    class None_(base.NamedTuple):  # type: ignore[misc]
        pass

    class Named(base.NamedTuple):  # type: ignore[misc]
        count: int
        index: int

        def __repr__(self) -> str:
            return "its own"

    return Two, None_, Named


def _behaviour(base: Any) -> list[object]:
    two, none, named = _classes(base)
    made = two._make([3, "made before an instance"])
    one = two(1)
    said: list[object] = [repr(made), repr(one), repr(none()), repr(named(1, 2)), named(1, 2).count, named(1, 2).index]
    said += [one == (1, "two"), one < (2,), hash(one) == hash((1, "two")), [*one], one[1], len(one), one.both]
    said += [two.of(4), two(new="n", first=2), one._replace(new="changed"), one._asdict(), two._fields]
    said += [two._field_defaults, two.__match_args__, two.__doc__, two.__name__, two.__module__, "everything" in one]
    said += [copy.copy(one) == one, copy.deepcopy(one) == one, type(copy.deepcopy(one)) is two, isinstance(one, tuple)]
    said += [hasattr(one, "__dict__"), two.first.__doc__, issubclass(two, tuple), type(one._replace(first=5)) is two]
    wrong: list[typing.Callable[[], object]] = [two, lambda: two(1, 2, 3), lambda: two(1, nothing=2)]
    wrong += [lambda: two._make([1]), lambda: two._make([1, 2, 3]), lambda: none(1)]
    for call in wrong:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="unexpected field names"):
        one._replace(nothing=1)
    with pytest.raises(AttributeError):
        one.first = 2
    with pytest.raises(TypeError, match="default"):

        class _Wrong(base.NamedTuple):  # type: ignore[misc]
            first: int = 1
            second: int

    return said


@pytest.mark.parametrize("uncompiled", [0, ours._SELDOM])
def test_they_behave_as_the_standard_librarys(uncompiled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_SELDOM", uncompiled)  # instances that are made before the constructor is compiled
    assert _behaviour(ours) == _behaviour(typing)


def test_many_instances_are_alike() -> None:
    (two, *_), (standard, *_) = _classes(ours), _classes(typing)
    count = 3 * ours._SELDOM
    assert [two(number, new="n") for number in range(count)] == [standard(number, new="n") for number in range(count)]


class Sent(ours.NamedTuple):
    """An instance that another process is to read, before any other was made there."""

    value: int
    rest: tuple[int, ...] = ()


def test_an_instance_crosses_to_another_process() -> None:
    text = pickle.dumps(Sent(3, (4,))).hex()
    code = f"import pickle; from {__name__} import Sent; print(pickle.loads(bytes.fromhex('{text}')) == Sent(3, (4,)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"
