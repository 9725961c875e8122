"""``dmods gdb ...``, and what of `dmods NAME ...` is drgn's business: the debugger that is here, with the commands in
it.

They take this process's place: their terminal, their Ctrl-C and their exit status are the user's own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from dmods.errors import UserError
from dmods.link import FOR_DRGN, FOR_GDB

SUMMARY = "start gdb with the commands in it, on a core alone, a program and its core, or a process"
USAGE = "usage: dmods gdb [GDB'S ARGUMENTS]   (`dmods gdb core.1603`, `dmods gdb -p PID`)"


def run(words: Sequence[str]) -> int:
    """Replaces this process by gdb. Raises UserError where there is none."""
    if list(words) in (["-h"], ["--help"]):
        print(f"{USAGE}\n\n{SUMMARY}; `gdb --help` has gdb's own arguments")
        return 0
    gdb = shutil.which("gdb")
    if gdb is None:
        raise UserError("there is no gdb", "apt-get install gdb; or without a debugger: dmods NAME CORE")
    return _become(gdb, ["-x", str(FOR_GDB), *words])


def find_drgn() -> Optional[str]:
    """The drgn that was installed beside this Python, else the one in PATH."""
    beside = Path(sys.executable).with_name("drgn")
    return str(beside) if beside.exists() else shutil.which("drgn")


def drgn(dump: str, name: str, words: Sequence[str]) -> int:
    """Replaces this process by `drgn -c DUMP NAME WORDS`. Raises UserError where there is no drgn."""
    found = find_drgn()
    if found is None:
        raise UserError(
            f"{name} of a kernel dump needs drgn, which is not here", f"{install_drgn()}; then: drgn -c {dump} {name}"
        )
    return _become(found, ["-q", "-c", dump, str(FOR_DRGN), name, *words])


def install_drgn() -> str:
    return f"{sys.executable} -m pip install drgn"


def _become(program: str, words: Sequence[str]) -> int:
    sys.stdout.flush()
    try:
        os.execv(program, [program, *words])
    except OSError as error:
        raise UserError(f"{program} cannot be started: {error.strerror}", "`dmods doctor` tries it") from error
