"""The selected inferior as a Target. While it is the same process or core, it is the same object.

Caches belong to the code that computes: their key is the Target and its ``state()``.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Any

import gdb

from dmods.errors import UserError
from dmods.target import Target
from gdbext import adopt, names
from gdbext.live import LiveTarget
from gdbext.target import CoreTarget

_targets: dict[int, tuple[Hashable, Target]] = {}  # by the inferior's number in gdb


def current_target() -> Target:
    """Return the Target of the selected inferior. Raises UserError without an inferior, or where it is running."""
    adopt.pending()
    inferior = gdb.selected_inferior()
    if inferior.pid == 0:
        raise UserError(
            "gdb has neither a core nor a process here",
            "load one: gdb -x heapcmds.py CORE; or, in gdb: core-file CORE, attach PID, or run and stop",
        )
    core = adopt.loaded_core()
    if core is None and any(thread.is_running() for thread in inferior.threads()):
        raise UserError("the process is running", "stop it first: Ctrl-C, or `interrupt`")
    key = _identity(inferior, core)
    known = _targets.get(inferior.num)
    if known is None or known[0] != key:
        _targets[inferior.num] = known = (key, _make(inferior, core))
    for gone in _targets.keys() - {each.num for each in gdb.inferiors()}:
        del _targets[gone]
    return known[1]


def _identity(inferior: Any, core: str | None) -> Hashable:
    program = names.program()
    if core is None:
        return ("live", inferior.pid, program)
    try:
        status = os.stat(core)
    except OSError as error:
        raise UserError(f"{core} is no longer there: {error.strerror}", "load another one: core-file CORE") from None
    return ("core", core, status.st_ino, status.st_size, status.st_mtime_ns, program, names.sysroot())


def _make(inferior: Any, core: str | None) -> Target:
    if core is not None:
        program = names.program()
        return CoreTarget(core, program if program and os.path.isfile(program) else None, names.sysroot())
    return LiveTarget(inferior)
