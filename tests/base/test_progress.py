from __future__ import annotations

import io

import pytest

from dmods.base import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_bar_after_a_second_and_gone_at_the_end(clock: list[float]) -> None:
    stream = Terminal()
    with progress.Progress("marking", stream) as bar:
        bar.update(1, 10)
        assert stream.getvalue() == ""
        clock[0] += 1.5
        bar.update(5, 10)
        drawn = stream.getvalue()
        assert "marking [" in drawn
        assert drawn.count("#") * 2 == drawn[drawn.index("[") : drawn.index("]")].count(" ") + drawn.count("#")
        bar.update(6, 10)
        assert stream.getvalue() == drawn, "more than ten a second"
        clock[0] += 0.2
        bar.update(0, 0)
        assert "marking ... 2 s" in stream.getvalue()
    screen = ""
    for part in stream.getvalue().split("\r"):
        screen = part + screen[len(part) :]
    assert screen.strip() == ""


def test_no_bar_where_there_is_no_terminal(clock: list[float]) -> None:
    stream = io.StringIO()
    with progress.Progress("marking", stream) as bar:
        clock[0] += 5
        bar.update(5, 10)
    assert stream.getvalue() == ""
