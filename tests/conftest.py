"""Cores shared by the tests of the base (tests/corekit.py makes them)."""

from __future__ import annotations

import pytest

from tests.corekit import Crash, crash


@pytest.fixture(scope="session")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crash:
    """tests/crash.c, dumped by the kernel as it died."""
    return crash(tmp_path_factory.mktemp("crashed"), "kernel")


@pytest.fixture(scope="session")
def gcored(tmp_path_factory: pytest.TempPathFactory) -> Crash:
    """tests/crash.c, dumped by gdb's gcore as it waited."""
    return crash(tmp_path_factory.mktemp("gcored"), "gcore")
