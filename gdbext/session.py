"""The selected inferior as a Target: the same object for as long as it is the same process or core.

What is worth caching is cached by others, keyed on the Target and on what its ``state()`` says.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import gdb

from dmods.errors import UserError
from gdbext import adopt, names

if TYPE_CHECKING:
    from dmods.target import Target

_targets: dict[int, tuple[Hashable, Target]] = {}  # by the inferior's number in gdb
_moves = 0


def watch() -> None:
    """Counts everything in gdb that can change a live process: it ran, or the user wrote to it."""
    for name in ("cont", "stop", "exited", "inferior_call", "memory_changed", "register_changed"):
        getattr(gdb.events, name).connect(_moved)


def _moved(_event: Any) -> None:
    global _moves  # noqa: PLW0603 (one gdb, one count)
    _moves += 1


def moves() -> int:
    return _moves


def current_target() -> Target:
    """The Target behind the selected inferior. Raises UserError where there is none, or it is running."""
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
    program = inferior.progspace.filename
    if core is None:
        return ("live", inferior.pid, program)
    try:
        status = os.stat(core)
    except OSError as error:
        raise UserError(f"{core} is no longer there: {error.strerror}", "load a core that is: core-file CORE") from None
    return ("core", core, status.st_ino, status.st_size, status.st_mtime_ns, program, names.sysroot())


def _make(inferior: Any, core: str | None) -> Target:
    from gdbext.live import LiveTarget
    from gdbext.target import CoreTarget

    if core is not None:
        program = names.program()
        return CoreTarget(core, program if program and os.path.isfile(program) else None, names.sysroot())
    return LiveTarget(inferior)
