"""``sysbp``: mdb's ``::sysbp``, so that a program that is about to be gone can be looked at.

mdb's recipe for leaks in a program that ends is `::sysbp _exit`, `::run`, `::findleaks`. On Linux a process ends in the
system call exit_group (glibc's _exit since 2.3), and gdb's `catch syscall` stops there, all memory still in place.
"""

from __future__ import annotations

from typing import Optional

import gdb

from dmods.errors import UsageError
from gdbext.bridge import bridge

NAME = "sysbp"
# What a C programmer calls it, and the system calls that Linux has for it.
_KNOWN_AS = {"_exit": ["exit_group"], "exit": ["exit_group"], "_Exit": ["exit_group"]}


class SysBp(gdb.Command):
    """Stop the program at a system call.
    Usage: sysbp NAME...

    `sysbp _exit`, `run`, then `findleaks`: the program stops when it ends, its memory still in place.
    Any system call that gdb's `catch syscall` knows will do."""

    def __init__(self, name: str) -> None:
        super().__init__(name, gdb.COMMAND_BREAKPOINTS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        self.dont_repeat()
        bridge(lambda: _catch(gdb.string_to_argv(argument)))

    def complete(self, text: str, word: Optional[str]) -> list[str]:
        return [name for name in (*_KNOWN_AS, "exit_group", "abort") if word is not None and name.startswith(word)]


def _catch(names: list[str]) -> None:
    if not names:
        raise UsageError("sysbp: which system call?", "sysbp _exit stops the program where it ends")
    for name in names:
        for call in _KNOWN_AS.get(name, [name]):
            gdb.execute(f"catch syscall {call}")
