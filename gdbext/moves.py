"""Counts how often gdb may have changed a live process, so that answers are not kept beyond a change."""

from __future__ import annotations

from typing import Any

import gdb

_moves = 0


def watch_moves() -> None:
    """Count every event in gdb that can change a live process: the process ran, or the user wrote to it."""
    for name in ("cont", "stop", "exited", "inferior_call", "memory_changed", "register_changed"):
        getattr(gdb.events, name).connect(_moved)


def _moved(_event: Any) -> None:
    global _moves  # noqa: PLW0603 (one gdb, one count)
    _moves += 1


def count_moves() -> int:
    """Return how many such events there were so far."""
    return _moves
