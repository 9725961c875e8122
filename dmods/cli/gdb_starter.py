"""``dmods gdb ...``: this machine's gdb, with the commands in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Optional

from dmods.cli import gdb_arguments
from dmods.cli.frontend import become, say
from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.machine.installed import FOR_GDB
from dmods.modules.elf import ET_CORE, ET_REL

SUMMARY = "start gdb with the commands in it, on a core alone, a program and its core, or a process"
# Files that gdb itself takes as the first one: it reads their symbols.
_FIRST_FILES = (ET_REL, *gdb_arguments.PROGRAM_TYPES)
USAGE = "usage: dmods gdb [GDB'S ARGUMENTS]   (`dmods gdb core.1603`, `dmods gdb -p PID`)"


def run(words: Sequence[str]) -> int:
    """Replace this process by gdb. Raises UserError where there is no gdb, or where it cannot use a file."""
    if list(words) in (["-h"], ["--help"]):
        say(f"{USAGE}\n\n{SUMMARY}; `gdb --help` has gdb's own arguments")
        return 0
    gdb = shutil.which("gdb")
    if gdb is None:
        raise UserError("there is no gdb", "apt-get install gdb; or without a debugger: dmods NAME CORE")
    return become(gdb, ["-x", str(FOR_GDB), *_for_gdb(words)])


def _for_gdb(words: Sequence[str]) -> list[str]:
    """Return the words for gdb. dmods itself loads a core that has no program: gdb would take it for a program.

    Raises UserError for a file that does not exist, and for one that is neither a program nor a core.
    """
    line = gdb_arguments.parse(["gdb", *words])
    if line.args or line.pid is not None:
        return list(words)
    folder = os.path.expanduser(line.folder)  # gdb goes there before it reads its files
    places = [os.path.join(folder, os.path.expanduser(name)) for name in line.files]
    core = os.path.join(folder, os.path.expanduser(line.core)) if line.core is not None else None
    _check_given(line.files, places, line.core, core)
    types = [gdb_arguments.elf_type(place) for place in places]
    if len(places) == 2 and types[0] == ET_CORE and types[1] in gdb_arguments.PROGRAM_TYPES and core is None:
        return [*line.others, "--", line.files[1], line.files[0]]
    if core is None and len(places) == 1 and os.path.exists(places[0]) and types[0] not in _FIRST_FILES:
        core = places[0]
    elif core is None or places or line.executable is not None:
        return list(words)
    CoreFile(core)  # raises UserError for a file that is not a core
    return ["-ex", f"python import gdbext; gdbext.open_core({os.path.abspath(core)!a})", *line.others]


def _check_given(files: Sequence[str], places: Sequence[str], named: Optional[str], core: Optional[str]) -> None:
    """Raise UserError for a file that gdb would not find."""
    wanted = list(zip(files, places))
    if wanted and not os.path.exists(wanted[0][1]) and (wanted[0][0].startswith("target:") or shutil.which(files[0])):
        wanted = wanted[1:]  # gdb looks for a program in PATH, too
    elif len(wanted) == 2 and files[1].isdecimal():
        wanted = wanted[:1]  # a process
    if named is not None and core is not None:
        wanted.append((named, core))
    for name, place in wanted:
        if not os.path.exists(place):
            raise UserError(f"there is no file {name}", "give a core, a program and its core, or -p PID")
