"""The front end for gdb: adopts a core given alone, and offers every dmods command as ``mdb NAME`` and ``NAME``.

The user gives gdb the file ``gdbext/heapcmds.py``, through a link of that name (`dmods link`) or through `dmods gdb`.
"""

from __future__ import annotations

from collections.abc import Callable

_ready = False


def install(script: str) -> None:
    """Register the commands and adopt the core on gdb's command line, once in gdb's life.

    `script` is the real path of the file that gdb was given.
    """

    def start() -> None:
        global _ready  # noqa: PLW0603 (one gdb, one registration)
        check_set_up(WHO)
        # These imports need the engine, so they come after the check for it.
        from gdbext import adopt, commands
        from gdbext.moves import watch_moves

        watch_moves()
        commands.register()
        _ready = True
        adopt.at_start(script)

    from dmods.cli.frontend import check_set_up
    from gdbext.bridge import WHO

    if not _ready:
        _noted(start)


def open_core(path: str) -> None:
    """Load a core with its program. `dmods gdb CORE` calls this, so that gdb does not see the core as a program."""

    def start() -> None:
        from gdbext import adopt

        adopt.adopt(path, loaded=False)

    if _ready:
        _noted(start)


def _noted(work: Callable[[], None]) -> None:
    """Do the work, and write an error as a note: outside a command gdb would show it with a traceback."""
    import gdb

    from gdbext import output
    from gdbext.bridge import bridge

    try:
        bridge(work)
    except gdb.GdbError as error:
        output.note(str(error))
