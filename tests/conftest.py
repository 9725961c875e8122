"""Cores that the tests share (tests/corekit.py makes them), and the names of parametrized tests."""

from __future__ import annotations

import os

import pytest

from fixtures import _cache
from tests.corekit import Crash, crash
from tests.quick import Selection


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dmods")
    group.addoption("--quick", action="store_true", help="leave out the tests that only scripts/test --all runs")
    group.addoption("--all", action="store_true", help="run every test (as without --quick), with longer fuzzing")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thorough(why): not in the quick run of scripts/test; --all runs it")
    if config.getoption("all"):
        os.environ.setdefault("DMODS_FUZZ_CORES", "50")
    if config.getoption("quick"):
        os.environ[_cache.QUICK] = "1"  # for the fixtures, in this process and its children
        config.pluginmanager.register(Selection(config))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Return the argument's name for a parameter of bytes, so that the test is not named after the content.

    A compressor writes the time into its output. Two workers that build such a value in different seconds would collect
    tests of different names, and pytest-xdist would run none.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crash:
    """Return a core of tests/crash.c, dumped by the kernel when it died."""
    return crash(tmp_path_factory.mktemp("crashed"), "kernel")


@pytest.fixture(scope="session")
def gcored(tmp_path_factory: pytest.TempPathFactory) -> Crash:
    """Return a core of tests/crash.c, dumped by gdb's gcore while it waited."""
    return crash(tmp_path_factory.mktemp("gcored"), "gcore")
