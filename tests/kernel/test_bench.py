"""scripts/bench memstat and kernel: every step agrees with the engine, and costs what it should."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.bench import kernel as bench_kernel
from tools.bench import measure, memstat, terabyte


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


def test_the_page_array_of_a_large_machine(tmp_path: Path) -> None:
    """All pages are counted right. The memory that this takes does not depend on how many there are."""
    dump = tmp_path / "vmcore"
    pages = terabyte.PAGES["64G"]
    terabyte.make(dump, pages)
    assert dump.stat().st_size < 32 << 20
    assert terabyte.count(dump, pages // 16) == terabyte.truth(pages // 16)
    command = [sys.executable, "-m", "tools.bench.terabyte", "--memory", "64G", "--one", "count", str(dump)]
    assert measure.run(command).rss < terabyte.MOST_BYTES
