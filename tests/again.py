"""Write down which tests failed, for the second try that scripts/test gives them (``pytest --failed-to FILE``)."""

from __future__ import annotations

from pathlib import Path

import pytest


class Failed:
    """Collect the ids of the tests that failed, and write them to the file, a line each, when the run ends.

    With pytest-xdist the controller sees the reports of all workers, also those of a worker that died in a test.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        self.path.write_text("".join(f"{name}\n" for name in self.names))
