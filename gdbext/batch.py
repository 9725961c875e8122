"""Set the exit status of `gdb -batch`: the first status of a dmods command that is not 0.

gdb's own status is 0, or 1 where its last command failed. A script that looks for leaks needs the status of findleaks.
"""

from __future__ import annotations

from typing import Any

import gdb

from gdbext import output

# gdb's own status is 0 or 1. The user sets a greater one with `quit STATUS`.
_LEAST_OF_USER = 2
_batch = False
_status = 0


def watch_exit() -> None:
    """Have this gdb, started with -batch, exit with the kept status."""
    global _batch  # noqa: PLW0603 (one gdb, one exit status)
    _batch = True
    if _can_exit_with_status():
        gdb.events.gdb_exiting.connect(_leave)


def keep_status(status: int) -> None:
    """Keep the status of a command that has ended. The first that is not 0 stays."""
    global _status  # noqa: PLW0603
    if _batch and status and not _status and not _can_exit_with_status():
        output.note(f"the exit status would be {status}, but a gdb before 12 cannot pass it on: use `dmods NAME CORE`")
    _status = _status or status


def _can_exit_with_status() -> bool:
    return hasattr(gdb.events, "gdb_exiting")


def _leave(event: Any) -> None:
    global _status
    status, _status = _status, 0  # `quit` below calls this function again
    if status and (getattr(event, "exit_code", None) or 0) < _LEAST_OF_USER:
        gdb.execute("set confirm off")
        gdb.execute(f"quit {status}")
