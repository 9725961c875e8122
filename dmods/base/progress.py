"""A progress bar on stderr: only on a terminal, and only after a second. And what work has cost."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Callable, Optional, TextIO

_WIDTH = 30


class Progress:
    """A progress bar: ``with Progress("marking") as bar: bar.update(done, total)``.

    ``update`` may be called as often as is convenient: the bar is drawn ten times a second at most. It is erased at the
    end. Where the total is not known (0), it shows the elapsed seconds.
    """

    def __init__(self, label: str, stream: Optional[TextIO] = None, delay: float = 1.0) -> None:
        self._label = label
        self._stream = stream if stream is not None else sys.stderr
        self._started = time.monotonic()
        self._next = self._started + delay if self._stream.isatty() else float("inf")
        self._drawn = 0

    def __enter__(self) -> Progress:
        return self

    def update(self, done: int, total: int) -> None:
        """Draw the bar, unless it was drawn just before."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + 0.1
        if total > 0:
            part = min(1.0, done / total)
            filled = round(part * _WIDTH)
            text = f"{self._label} [{'#' * filled}{' ' * (_WIDTH - filled)}] {part:4.0%}"
        else:
            text = f"{self._label} ... {now - self._started:.0f} s"
        self._stream.write(f"\r{text:<{self._drawn}}")
        self._stream.flush()
        self._drawn = len(text)

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._drawn:
            self._stream.write(f"\r{' ' * self._drawn}\r")
            self._stream.flush()


@contextmanager
def bar(label: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show a bar while work of a known total is done. Yield what the engine calls with how much is done."""
    with Progress(label) as shown:
        yield lambda done: shown.update(done, total)


class Clock:
    """The time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def elapsed(self) -> tuple[float, float]:
        """Return the wall seconds and the CPU seconds since the start."""
        return time.monotonic() - self._wall, time.process_time() - self._cpu
