"""What is said beside the answers, on gdb's stderr: `pipe` and logging take only the answers, from its stdout."""

from __future__ import annotations

import gdb


def note(text: str) -> None:
    """A line or more about the answer, not of it."""
    # What was written before must not come after it, when both go to one terminal or file.
    gdb.flush(gdb.STDOUT)
    for line in text.splitlines():
        gdb.write(f"dmods: {line}\n", gdb.STDERR)
    gdb.flush(gdb.STDERR)
