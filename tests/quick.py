"""Which tests are in the quick run (``pytest --quick``, which ``scripts/test`` gives) and which only in the whole one.

A test is left out of the quick run if it is marked ``thorough``, if it is marked ``quick`` with other parameters, or if
one of its parameters names something that takes long to make: another userland, another kernel, another machine
(:func:`reason`). The fixtures refuse to make
such a thing in the quick run (``fixtures._cache.not_in_quick_run``), so that a test cannot need it unnoticed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Optional

import pytest

from dmods.base.dataclass import field_names
from fixtures import jemallocs, kernel, userlands
from fixtures.kernel import packages

#: Names of userlands, kernels and crates as tests have them in their parameters.
FOREIGN = (userlands.RECIPES.keys() | packages.KERNELS.keys()) - {packages.QUICK}
FOREIGN |= {crate.name for crate in jemallocs.CRATES.values()}

#: Ways for the kernel to die that add a guest each, beside those of the quick run.
SELDOM = {*kernel.CRASHES, *kernel.SELDOM, *kernel.TRACED} - set(kernel.QUICK)


def only(kept: Iterable[object], values: Iterable[object], why: str = "another is tested") -> list[object]:
    """Return the values as parameters of a test. The quick run takes those in ``kept``; ``why`` is for the others."""
    quick = set(kept)
    known = list(values)
    assert quick <= set(known), "a parameter that is kept is one of the values"
    mark = pytest.mark.thorough(why)
    # A tuple has a value for each of several arguments.
    parts = {each: each if isinstance(each, tuple) else (each,) for each in known}
    return [pytest.param(*parts[each], marks=() if each in quick else mark) for each in known]


def reason(item: pytest.Item) -> Optional[str]:
    """Return why the test is not in the quick run, or None if it is."""
    mark = item.get_closest_marker("thorough")
    if mark is not None:
        return str(mark.args[0])
    mark = item.get_closest_marker("quick")
    if mark is not None and _id(item) not in mark.args:
        return "other parameters are tested"
    named = set(parameter_words(item))
    foreign = sorted(named & FOREIGN)
    if foreign:
        return f"it needs {foreign[0]}"
    if "kexec" in named and not named & set(kernel.QUICK_KEXEC):
        return "it needs a crash kernel"
    seldom = sorted(named & SELDOM) if "kernel" in item.path.parts else []
    return f"it needs a guest that died of {seldom[0]}" if seldom else None


def _id(item: pytest.Item) -> str:
    """Return the name of the test's parameters: what stands between the brackets."""
    return item.name.partition("[")[2][:-1]


def check_kept(items: Iterable[pytest.Item]) -> None:
    """Raise UsageError if a test is marked ``quick`` with parameters that it does not have: nothing would run them."""
    kept: dict[str, set[object]] = {}
    there: dict[str, set[object]] = {}
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark is not None:
            name = item.nodeid.partition("[")[0]
            kept[name] = set(mark.args)
            there.setdefault(name, set()).add(_id(item))
    for name, ids in kept.items():
        if ids - there[name]:
            raise pytest.UsageError(
                f"{name} has no parameters {sorted(map(str, ids - there[name]))}: mark.quick (tests/quick.py)"
            )


def parameter_words(item: pytest.Item) -> Iterator[str]:
    """Yield the strings in the parameters of the test."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    for value in parameters.values():
        yield from _words(value)


def _words(value: object) -> Iterator[str]:
    """Yield the strings in a parameter: itself, or those that a tuple, a list, a mapping or a dataclass holds."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _words(part)
    elif isinstance(value, Mapping):
        yield from _words(list(value.values()))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _words(getattr(value, field.name))
    else:
        for name in field_names(value):
            yield from _words(getattr(value, name))


class Selection:
    """Deselect what is not in the quick run, and say how many tests that were.

    pytest-xdist does not tell its controller what a worker deselects, so each worker hands its list over at its end.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.left_out: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if not self._selects():
            check_kept(items)
        left_out = [item for item in items if reason(item)]
        if left_out:
            items[:] = [item for item in items if not reason(item)]
            self.left_out = [item.nodeid for item in left_out]
            self.config.hook.pytest_deselected(items=left_out)

    def _selects(self) -> bool:
        """Return whether the user chose tests, so that some parameters of a test may not be collected."""
        option = self.config.option
        return bool(option.keyword or option.markexpr or any("::" in str(arg) for arg in self.config.args))

    def pytest_sessionfinish(self) -> None:
        output = getattr(self.config, "workeroutput", None)  # a worker of pytest-xdist
        if output is not None:
            output["left_out"] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        told = getattr(node, "workeroutput", {}).get("left_out", [])
        if told and not self.left_out:  # every worker collects the same
            self.left_out = told
            self.config.hook.pytest_deselected(items=told)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"{len(self.left_out)} tests run only with --all (scripts/test --all)")
