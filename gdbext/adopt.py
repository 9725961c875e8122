"""Load a core that gdb was given alone: `gdb -x heapcmds.py core.1603`. gdb takes the core for a program and gives up.

gdb reads the files of its command line first and runs the -x scripts after them, also with -batch. The script then
finds no file (the core was given alone), a core without a program (`gdb -c core`), or both. dmods never replaces a
program that the user gave.
"""

from __future__ import annotations

import os
from typing import Optional

import gdb

from dmods.cli import gdb_arguments
from dmods.cli.frontend import NAMED, collect_little
from dmods.cli.open_files import open_with_raw_name, sayable
from dmods.errors import UserError
from dmods.modules.elf import ET_CORE
from gdbext import batch
from gdbext.names import program, sysroot
from gdbext.output import fit_terminal, note

_pending: list[gdb_arguments.CommandLine] = []
_looked_at: set[tuple[str, Optional[str]]] = set()  # (core, sysroot)


def at_start(script: str) -> None:
    """Adopt now if gdb has read its files. Otherwise adopt as soon as it has, or at the first dmods command."""
    line = _own_command_line()
    if line.batch:
        collect_little()
        batch.watch_exit()
        fit_terminal()
    _pending.append(line)
    if _runs_now(line, script):
        pending()
    else:
        # In an init file, gdb has not looked at its files yet. It has before its first prompt. A posted event would do,
        # but gdb crashes if it ends (-batch, `-ex quit`) before it has run the event.
        gdb.events.before_prompt.connect(_at_prompt)


def _at_prompt(_event: None = None) -> None:
    gdb.events.before_prompt.disconnect(_at_prompt)
    pending()


def pending() -> None:
    """Adopt the core that is left to adopt. This is cheap where no core is left."""
    line = _pending.pop() if _pending else None
    if program() is not None:
        return
    try:
        core = loaded_core()
        if core is not None:
            if (core, sysroot()) not in _looked_at:  # a program that was not found then will not be found now
                adopt(core, loaded=True)
        elif line is not None and gdb.selected_inferior().pid == 0:
            _adopt_argument(line)
    except UserError as error:
        note(f"{error.what}\n{error.how}")


def adopt(core: str, *, loaded: bool, executable: Optional[str] = None) -> None:
    """Load `core` with its program and say so in a line. Raises UserError for a file that cannot be read as a core."""
    from dmods.corefile.target import find_executable
    from dmods.corefile.unpacked import plain_path

    core, said = plain_path(core)
    for each in said:
        note(each)
    _looked_at.add((os.path.abspath(core), sysroot()))
    how = f"the program is {executable}, as given"
    if executable is None:
        executable, how = find_executable(core, sysroot())
    if executable is not None:
        gdb.execute(f"file {_quoted(sayable(os.path.abspath(executable)))}")
    if executable is not None or not loaded:
        _load_core(sayable(os.path.abspath(core)))
    note(f"{core}: {how}")


def loaded_core() -> Optional[str]:
    """Return the path of the core file that the selected inferior is, or None."""
    # gdb's Python cannot say this before gdb 17. This text is the same from gdb 7 on.
    if gdb.selected_inferior().pid == 0:
        return None
    try:
        _, found, rest = gdb.execute("info files", to_string=True).partition("Local core dump file:\n\t`")
    except UnicodeDecodeError:
        return open_with_raw_name(ET_CORE)
    return rest.partition("', file type ")[0] if found else None


def _adopt_argument(line: gdb_arguments.CommandLine) -> None:
    given = [_stored(name) if name.startswith(NAMED) else name for name in (line.core, *line.files) if name]
    files = [name for name in given if os.path.exists(name)]
    if not files or line.args or line.pid:
        return
    cores = [name for name in files if gdb_arguments.elf_type(name) == ET_CORE]
    if not cores and line.core is None and len(line.files) > 1:
        return  # a program and another file, for which gdb has printed an error
    core = cores[0] if cores else files[0]
    programs = [name for name in files if gdb_arguments.elf_type(name) in gdb_arguments.PROGRAM_TYPES]
    if cores and line.files and line.files[0] == core:
        note(f'gdb says that {core} is "not in executable format": this is expected, it is a core. dmods loads it.')
    adopt(core, loaded=False, executable=programs[0] if programs else None)


def _stored(name: str) -> str:
    from dmods.corefile.stored import named  # it knows all keepers of cores, and a path needs none

    return named(name)


def _own_command_line() -> gdb_arguments.CommandLine:
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().split(b"\0")[:-1]
    except OSError:
        return gdb_arguments.CommandLine()
    return gdb_arguments.parse(gdb_arguments.without_loader([os.fsdecode(word) for word in words]))


def _runs_now(line: gdb_arguments.CommandLine, script: str) -> bool:
    """Return whether gdb runs the script for a -x (or an -ex), which it does after reading its files."""
    for kind, text in line.steps:
        words = gdb.string_to_argv(text) if kind in ("eval", "init-eval") else ["source", text]
        if len(words) > 1 and os.path.realpath(os.path.expanduser(words[-1])) == script:
            return kind in ("command", "eval")
    return False


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _load_core(path: str) -> None:
    """Load a core. gdb before 16 takes the rest of the line as it is; newer ones split it as a shell does."""
    try:
        gdb.execute(f"core-file {path}")
    except gdb.error:
        if path == _quoted(path)[1:-1] and not any(c.isspace() or c == "'" for c in path):
            raise
        gdb.execute(f"core-file {_quoted(path)}")
