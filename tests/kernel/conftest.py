"""Tests of kernels do not depend on how fast the machine is."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from dmods.triage import runner


@pytest.fixture(autouse=True)
def checks_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of triage has 30 seconds on the clock, and says that it was not done after that.

    tests/triage tries the limit itself. Here, a check ends however busy the machine is.
    """
    monkeypatch.setattr(runner, "time_box", lambda _seconds: nullcontext())
