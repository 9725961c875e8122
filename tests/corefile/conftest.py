"""The program that tests of live processes run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corekit import compile_c


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(Path(__file__).parent / "live.c", tmp_path_factory.mktemp("live") / "server", "-pthread")
