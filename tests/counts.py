"""Count the processes and the guests that a run of the tests needs. A quick run that needs too many fails.

Seconds depend on the machine. These counts do not, and they are most of what the quick run costs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from fixtures import _cache

#: The most of each in the quick run. A new test asks a function where it can, not a process.
MOST = {"processes": 2750, "guests": 4}
#: The status of such a run. With it, scripts/test gives no test a second try.
TOO_MANY = 9


class Counts:
    """Count in each process of pytest, and add up in the first one, which says the sums."""

    def __init__(self, most: Mapping[str, int] = MOST) -> None:
        self.most = most
        self.processes = 0
        self.of_workers = 0
        self.guests: set[str] = set()
        sys.addaudithook(self._heard)

    def _heard(self, event: str, _args: object) -> None:
        # Kernels and guests are kept for all checkouts: whether this run makes them says nothing of its tests.
        kept = any(_cache.KERNELS in where.parents for where in _cache.making)
        self.processes += event == "subprocess.Popen" and not kept

    def _sums(self) -> dict[str, int]:
        # The process that has workers starts nothing but these.
        return {"processes": self.of_workers or self.processes, "guests": len(self.guests)}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        told = getattr(node, "workeroutput", {})
        self.of_workers += told.get("processes", 0)
        self.guests.update(told.get("guests", ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.guests.update(entry.name for entry in _cache.taken if entry.name.startswith("guest-"))
        output = getattr(session.config, "workeroutput", None)  # a worker of pytest-xdist
        if output is not None:
            output.update(processes=self.processes, guests=sorted(self.guests))
        elif any(count > self.most[name] for name, count in self._sums().items()):
            session.exitstatus = TOO_MANY

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, count in self._sums().items():
            limit = self.most[name]
            more = f": too many, at most {limit} (tests/counts.py)" if count > limit else f" of at most {limit}"
            terminalreporter.write_line(f"the tests needed {count} {name}{more}")
