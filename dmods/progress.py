"""A bar for what takes long: on a terminal's stderr only, and only after a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Optional, TextIO

_WIDTH = 30


class Progress:
    """``with Progress("marking") as bar: bar.update(done, total)``: as often as is convenient; it draws ten times a
    second at most, and takes itself away at the end. Where no total is known (0) it shows the seconds gone by."""

    def __init__(self, label: str, stream: Optional[TextIO] = None, delay: float = 1.0) -> None:
        self._label = label
        self._stream = stream if stream is not None else sys.stderr
        self._started = time.monotonic()
        self._next = self._started + delay if self._stream.isatty() else float("inf")
        self._drawn = 0

    def __enter__(self) -> Progress:
        return self

    def update(self, done: int, total: int) -> None:
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
