"""What is said beside the answers: notes, errors, progress. gdb's `pipe` takes its own stderr along with its stdout
(execute_command_to_ui_file redirects both), so that these go to the real one."""

from __future__ import annotations

import sys
from typing import TextIO

import gdb


def stderr() -> TextIO:
    """The stream for all that is not the answer itself."""
    # gdb holds back what has no newline yet: what was written before must not come after.
    gdb.flush(gdb.STDOUT)
    return sys.stderr if sys.__stderr__ is None or _tui() else sys.__stderr__


def note(text: str) -> None:
    """A line or more about the answer, not of it."""
    stream = stderr()
    stream.write("".join(f"dmods: {line}\n" for line in text.splitlines()))
    stream.flush()


def _tui() -> bool:
    """Whether gdb's full-screen interface is on, where only gdb itself knows how to write."""
    try:
        return "not active" not in gdb.execute("info win", to_string=True)
    except gdb.error:  # a gdb without it
        return False
