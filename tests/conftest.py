"""Cores shared by the tests of the base (tests/corekit.py makes them), and how tests are named."""

from __future__ import annotations

import pytest

from tests.corekit import Crash, crash


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A test given bytes is named after the argument, not its content.

    A compressor writes the time into what it makes: the two workers of a run that each build such a value in another
    second would collect tests of different names, and pytest-xdist then runs none.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crash:
    """tests/crash.c, dumped by the kernel as it died."""
    return crash(tmp_path_factory.mktemp("crashed"), "kernel")


@pytest.fixture(scope="session")
def gcored(tmp_path_factory: pytest.TempPathFactory) -> Crash:
    """tests/crash.c, dumped by gdb's gcore as it waited."""
    return crash(tmp_path_factory.mktemp("gcored"), "gcore")
