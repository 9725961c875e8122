"""growth, where blocks keep their addresses and get other content: tests/commands/replaced.c."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fixtures import answers
from fixtures.cores import check_core_pattern
from fixtures.limits import HANG
from tests.corekit import HERE, compile_c

_ITEMS, _ROUND = 999, 333  # the cache, and what is replaced in a round


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    where = tmp_path_factory.mktemp("replaced")
    program = compile_c(HERE / "commands" / "replaced.c", where / "replaced")
    check_core_pattern()
    script = 'ulimit -c unlimited; exec "$0"'
    subprocess.run(["sh", "-c", script, str(program)], cwd=where, check=True, timeout=HANG)
    return [where / f"core.{number}" for number in range(3)]


def grown(*cores: Path) -> dict[str, Any]:
    return answers.typed("growth", *cores)


def test_what_was_filled_anew_is_no_survivor(cores: list[Path]) -> None:
    answer = grown(*cores)
    assert answer["totals"]["changed_count"] == 2 * _ROUND
    assert _ITEMS <= answer["totals"]["compared_count"] <= _ITEMS + 4
    (note,) = (note for note in answer["notes"] if "surviving blocks" in note)
    assert f"{2 * _ROUND} hold other content" in note
    assert "probably the same" not in note


def test_from_one_core_to_the_next(cores: list[Path]) -> None:
    assert grown(*cores[:2])["totals"]["changed_count"] == _ROUND
    assert grown(*cores[1:])["totals"]["changed_count"] == _ROUND
