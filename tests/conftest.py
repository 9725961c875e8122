"""Cores that the tests share (tests/corekit.py makes them), and the names of parametrized tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fixtures import _cache
from tests.again import Failed
from tests.corekit import HERE, Crash, compile_c, crash, kernel_core
from tests.counts import Counts
from tests.moving import moves
from tests.quick import Selection


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dmods")
    group.addoption("--quick", action="store_true", help="leave out the tests that only scripts/test --all runs")
    group.addoption("--all", action="store_true", help="run every test (as without --quick), with longer fuzzing")
    group.addoption("--failed-to", type=Path, metavar="FILE", help="write the ids of the tests that failed to FILE")


def pytest_configure(config: pytest.Config) -> None:
    # A shell ignores these for its background jobs, nohup SIGHUP. Programs inherit that, and would not die of them.
    for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(ignored) is signal.SIG_IGN:
            signal.signal(ignored, signal.SIG_DFL)
    # No test asks a server for debug information, and gdb does not ask on a terminal whether it may.
    os.environ.pop("DEBUGINFOD_URLS", None)
    config.addinivalue_line("markers", "thorough(why): not in the quick run of scripts/test; --all runs it")
    config.addinivalue_line("markers", "quick(id, ...): in the quick run only with these parameters; --all runs all")
    config.addinivalue_line("markers", "moving: it needs a suite that changes from day to day (tests/moving.py)")
    config.addinivalue_line("markers", "seldom(why): only with DMODS_KERNELS=all")
    if config.getoption("all"):
        os.environ.setdefault("DMODS_FUZZ_CORES", "7")
    if config.getoption("failed_to") and not hasattr(config, "workerinput"):  # a worker of pytest-xdist has it
        config.pluginmanager.register(Failed(config.getoption("failed_to")))
    if config.getoption("quick"):
        os.environ[_cache.QUICK] = "1"  # for the fixtures, in this process and its children
        config.pluginmanager.register(Selection(config))
        config.pluginmanager.register(Counts())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of moving suites. Leave out tests whose fixtures take many minutes, unless DMODS_KERNELS=all."""
    for item in items:
        if moves(item):
            item.add_marker("moving")
    if os.environ.get("DMODS_KERNELS") != "all":
        left_out = [item for item in items if item.get_closest_marker("seldom")]
        items[:] = [item for item in items if not item.get_closest_marker("seldom")]
        config.hook.pytest_deselected(items=left_out)


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
def raw_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a core of tests/raw_names.c: its path, the program's and that of a mapped file are not UTF-8."""
    folder = tmp_path_factory.mktemp("raw") / "caf\udce9 1"
    folder.mkdir()
    mapped = folder / "100%\udce9"
    mapped.write_bytes(b"hello" * 1000)
    program = compile_c(HERE / "raw_names.c", folder / "prog\udce9")
    return kernel_core(program, folder, str(mapped)).rename(folder / "core\udce9")


@pytest.fixture(scope="session")
def gcored(tmp_path_factory: pytest.TempPathFactory) -> Crash:
    """Return a core of tests/crash.c, dumped by gdb's gcore while it waited."""
    return crash(tmp_path_factory.mktemp("gcored"), "gcore")
