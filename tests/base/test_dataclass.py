"""Our dataclasses against the standard library's, which are the oracle."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
import subprocess
import sys
from typing import Any

import pytest

from dmods.base import dataclass as ours

MAKERS: Any = {"ours": ours, "standard": dataclasses}


def _classes(maker: Any) -> Any:
    """Return the same classes, defined with one of the two."""

    @maker.dataclass
    class Base:
        first: int
        second: str = "two"

    @maker.dataclass
    class Child(Base):
        third: list[int] = maker.field(default_factory=list)
        fourth: Any = maker.field(default=4, repr=False)
        second: str = "three"
        constant = 5

        def __post_init__(self) -> None:
            self.sum = self.first + len(self.third)

    @maker.dataclass(frozen=True)
    class Key:
        name: str
        number: int = 0
        noise: int = maker.field(default=0, compare=False)

        @functools.cached_property
        def length(self) -> int:
            return len(self.name)

    @maker.dataclass(eq=False)
    class Identity:
        value: int = 1

    @maker.dataclass
    class Shown:
        value: int

        def __repr__(self) -> str:
            return "its own"

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    return Base, Child, Key, Identity, Shown


def _behaviour(maker: Any) -> list[object]:
    base, child, key, identity, shown = _classes(maker)
    one, two = child(1), child(1, "three", [], fourth=4)
    changed = maker.replace(one, first=9, third=[1, 2])
    one.third.append(7)
    said: list[object] = [
        repr(one),
        repr(two),
        repr(changed),
        one == two,
        changed.sum,
        two.sum,
        two.third,
        one.constant,
    ]
    said += [
        child(5) == base(5),
        base(5) == base(5, "two"),
        base.second,
        child.second,
        hasattr(child, "third"),
        child.constant,
    ]
    said += [hash(key("a", 1)) == hash(key("a", 1, 2)), key("a", 1) == key("a", 1, 2), key("a") == key("b")]
    said += [len({key("a"), key("a"), key("b")}), key("abc").length, base.__hash__ is None, key("a") == "a"]
    said += [identity() == identity(), len({identity(), identity()}), repr(shown(1)), shown(1) == 3, bool({shown(1)})]
    said += [copy.copy(one) == one, copy.deepcopy(one).third]
    for call in (base, lambda: base(1, 2, 3), lambda: base(1, nothing=2), lambda: hash(base(1))):
        with pytest.raises(TypeError):
            call()
    return said


@pytest.mark.parametrize("uncompiled", [0, ours._SELDOM])
def test_they_behave_as_the_standard_librarys(uncompiled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_SELDOM", uncompiled)  # instances that are made before the method is compiled
    assert _behaviour(ours) == _behaviour(dataclasses)


def test_many_instances_are_alike() -> None:
    _base, child, *_rest = _classes(ours)
    _base, standard, *_rest = _classes(dataclasses)
    count = 3 * ours._SELDOM
    made, known = ([vars(one(number, third=[number])) for number in range(count)] for one in (child, standard))
    assert made == known
    assert [list(one) for one in made] == [list(one) for one in known]  # the order of the fields


@ours.dataclass(frozen=True)
class Sent:
    """An instance that another process is to read, before any other was made there."""

    value: int
    rest: tuple[int, ...] = ()


def test_an_instance_crosses_to_another_process() -> None:
    text = pickle.dumps(Sent(3, (4,))).hex()
    code = f"import pickle; from {__name__} import Sent; print(pickle.loads(bytes.fromhex('{text}')) == Sent(3, (4,)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_names_of_the_fields() -> None:
    assert ours.field_names(Sent) == ours.field_names(Sent(1)) == ("value", "rest")
    assert ours.field_names(3) == ()
    with pytest.raises(TypeError):
        ours.replace(dataclasses.make_dataclass("Other", ["x"])(1), x=2)
    assert ours.as_mapping(Sent(1, (2,))) == {"value": 1, "rest": (2,)}


def test_a_short_command_does_not_import_inspect() -> None:
    code = """import atexit, sys, dmods.__main__
atexit.register(lambda: print(sorted({'argparse', 'inspect', 'dataclasses'} & {*sys.modules})))
dmods.__main__.main(["findleaks", "--help"])"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "['argparse']"
