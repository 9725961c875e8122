"""``sysbp``: mdb's ``::sysbp``. It stops a program at a system call, for example when it ends.

mdb's recipe for leaks in a program that ends is `::sysbp _exit`, `::run`, `::findleaks`. On Linux a process ends with
the system call exit_group (glibc's _exit since 2.3). gdb's `catch syscall` stops there, with all memory still in place.
"""

from __future__ import annotations

from typing import Optional

import gdb

from dmods.errors import UsageError
from gdbext.bridge import bridge

NAME = "sysbp"
# C's name of the function, and Linux's system calls for it.
_KNOWN_AS = {"_exit": ["exit_group"], "exit": ["exit_group"], "_Exit": ["exit_group"]}


class SysBp(gdb.Command):
    """Stop the program at a system call.
    Usage: sysbp NAME...

    `sysbp _exit`, `run`, then `findleaks`: the program stops when it ends, and its memory is still in place.
    NAME is any system call that gdb's `catch syscall` knows."""

    def __init__(self, name: str) -> None:
        super().__init__(name, gdb.COMMAND_BREAKPOINTS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Set the catchpoints for the named system calls."""
        self.dont_repeat()
        bridge(lambda: _catch(gdb.string_to_argv(argument)))

    def complete(self, text: str, word: Optional[str]) -> list[str]:
        """Return the names of common system calls that begin with the word."""
        return [name for name in (*_KNOWN_AS, "exit_group", "abort") if word is not None and name.startswith(word)]


def _catch(names: list[str]) -> None:
    if not names:
        raise UsageError("sysbp: NAME is missing", "sysbp _exit stops the program where it ends")
    for name in names:
        for call in _KNOWN_AS.get(name, [name]):
            gdb.execute(f"catch syscall {call}")
