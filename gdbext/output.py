"""Where text goes in gdb: results to gdb's stdout, which `pipe` and logging catch, and all else to its stderr."""

from __future__ import annotations

import gdb


def write(text: str) -> None:
    gdb.write(text)


def note(text: str) -> None:
    """A line or more about the answer, not of it."""
    # What was written before must not come after it, when both go to one terminal or file.
    gdb.flush(gdb.STDOUT)
    for line in text.splitlines():
        gdb.write(f"dmods: {line}\n", gdb.STDERR)
    gdb.flush(gdb.STDERR)
