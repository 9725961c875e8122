"""scripts/bench memstat and kernel: every step agrees with the engine, and costs what it should."""

from __future__ import annotations

import json

import pytest

from fixtures.bench import kernel as bench_kernel
from fixtures.bench import memstat


@pytest.mark.thorough("it measures for a minute")
def test_the_steps_agree(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 1 when a step's kinds differ from the engine's, page by page."""
    assert memstat.main(["--quick", "--sample", "2000", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["failures"] == []
    elf = [step for step in answer["steps"] if step["dump"] == "ELF" and "walk" not in step["what"]]
    kdump = [step for step in answer["steps"] if step["dump"] == "kdump zlib"]
    for steps in (elf, kdump):
        assert steps[0]["what"].startswith("naive")
        assert len(steps) == 7
        assert all(step["speedup"] > 5 for step in steps[1:])
    assert [goal["reached"] is None for goal in answer["goals"]] == [False] * 3


@pytest.mark.thorough("it measures for some seconds")
def test_leaks_are_right_and_their_cost_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 1 when a known count is wrong."""
    assert bench_kernel.main(["--quick", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["failures"] == []
    assert len(answer["goals"]) == 4
    assert answer["figures"]["one pass"] > 0
