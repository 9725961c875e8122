"""The front end for gdb: adopts a core given alone, and offers every dmods command as ``mdb NAME`` and ``NAME``.

``gdbext/heapcmds.py`` is what the user gives to gdb, by a link of that name (`dmods link`) or by `dmods gdb`.
"""

from __future__ import annotations


def install(script: str) -> None:
    """Registers the commands and adopts the core on gdb's command line, once in gdb's life however often it is sourced.

    ``script`` is the real path of the file that gdb was given.
    """
    import gdb

    from dmods.frontend import check_set_up
    from gdbext import adopt, commands, output, session
    from gdbext.bridge import WHO, bridge

    def start() -> None:
        check_set_up(WHO)
        session.watch()
        commands.register()
        adopt.at_start(script)

    if not commands.registered():
        try:
            bridge(start)
        except gdb.GdbError as error:  # gdb shows it without a traceback only when it comes from a command
            output.note(str(error))
