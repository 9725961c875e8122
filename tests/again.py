"""Write down which tests failed, for scripts/test (``pytest --failed-to FILE``).

scripts/test gives them a second try. Those of moving suites (tests/moving.py) are in FILE.moving: it only tells them.
Those that passed are in FILE.passed, for tests/unsteady.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest


class Failed:
    """Collect the ids of the tests that failed, and write them to the files, a line each, when the run ends.

    With pytest-xdist the controller sees the reports of all workers, also those of a worker that died in a test.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: dict[bool, dict[str, None]] = {False: {}, True: {}}  # whether it is of a moving suite
        self.passed: dict[str, None] = {}
        self.terminal: Optional[pytest.TerminalReporter] = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.terminal = session.config.pluginmanager.get_plugin("terminalreporter")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names["moving" in report.keywords][report.nodeid] = None
            # A run of an hour may be cut: what has failed is known at once.
            if self.terminal is not None:
                self.terminal.ensure_newline()
                self.terminal.write_line(f"failed: {report.nodeid}")
        elif report.passed and report.when == "call":
            self.passed[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        passed = self.passed.keys() - self.names[False].keys() - self.names[True].keys()  # its teardown may have failed
        for names, suffix in ((self.names[False], ""), (self.names[True], ".moving"), (sorted(passed), ".passed")):
            self.path.with_name(self.path.name + suffix).write_text("".join(f"{name}\n" for name in names))
