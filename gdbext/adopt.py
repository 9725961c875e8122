"""`gdb -x heapcmds.py core.1603`: gdb takes a lone core for the program and gives up on it. Here it is given both.

gdb reads its command line's files first and the -x scripts after them, also with -batch, so that the script finds
either nothing (the core alone), or a core without a program (`gdb -c core`), or all that is needed. What the user gave
stays.
"""

from __future__ import annotations

import os
from typing import Optional

import gdb

from dmods.errors import UserError
from gdbext import cmdline
from gdbext.names import program, sysroot
from gdbext.output import note

_pending: list[cmdline.CommandLine] = []
_looked_at: set[tuple[str, Optional[str]]] = set()  # (core, sysroot)


def at_start(script: str) -> None:
    """Adopts now if gdb has read its files by now, else as soon as it has: at the first prompt or our first command."""
    line = _own_command_line()
    _pending.append(line)
    if _runs_now(line, script):
        pending()
    else:
        # From an init file, where gdb has yet to look at the files; or from the prompt, where this is at once.
        gdb.post_event(pending)


def pending() -> None:
    """What is left to adopt, if anything. Cheap when nothing is."""
    line = _pending.pop() if _pending else None
    if program() is not None:
        return
    try:
        core = loaded_core()
        if core is not None:
            if (core, sysroot()) not in _looked_at:  # what was not found then will not be found now
                adopt(core, loaded=True)
        elif line is not None and gdb.selected_inferior().pid == 0:
            _adopt_argument(line)
    except UserError as error:
        note(f"{error.what}\n{error.how}")


def adopt(core: str, *, loaded: bool, executable: Optional[str] = None) -> None:
    """Loads ``core`` with its program and says so in a line. Raises UserError where it is no core that can be read."""
    from dmods.corefile import find_executable

    _looked_at.add((os.path.abspath(core), sysroot()))
    how = f"the program is {executable}, as given"
    if executable is None:
        executable, how = find_executable(core, sysroot())
    if executable is not None:
        gdb.execute(f"file {_quoted(os.path.abspath(executable))}")
    if executable is not None or not loaded:
        _load_core(os.path.abspath(core))
    note(f"{core}: {how}")


def loaded_core() -> Optional[str]:
    """The path of the core file that the selected inferior is, if it is one."""
    # gdb's Python has no word for it before gdb 17; this text is the same from gdb 7 on.
    if gdb.selected_inferior().pid == 0:
        return None
    _, found, rest = gdb.execute("info files", to_string=True).partition("Local core dump file:\n\t`")
    return rest.partition("', file type ")[0] if found else None


def _adopt_argument(line: cmdline.CommandLine) -> None:
    files = [name for name in (line.core, *line.files) if name and os.path.exists(name)]
    if not files or line.args or line.pid:
        return
    cores = [name for name in files if _elf_type(name) == _ET_CORE]
    if not cores and line.core is None and len(line.files) > 1:
        return  # a program and something else, neither to gdb's liking: gdb has said so
    core = cores[0] if cores else files[0]
    programs = [name for name in files if _elf_type(name) in _ET_PROGRAMS]
    adopt(core, loaded=False, executable=programs[0] if programs else None)


_ET_PROGRAMS, _ET_CORE = (2, 3), 4


def _elf_type(path: str) -> Optional[int]:
    try:
        with open(path, "rb") as file:
            head = file.read(18)
    except OSError:
        return None
    if len(head) < 18 or head[:4] != b"\x7fELF":
        return None
    return int.from_bytes(head[16:18], "little" if head[5] == 1 else "big")


def _own_command_line() -> cmdline.CommandLine:
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().split(b"\0")[:-1]
    except OSError:
        return cmdline.CommandLine()
    return cmdline.parse(cmdline.without_loader([os.fsdecode(word) for word in words]))


def _runs_now(line: cmdline.CommandLine, script: str) -> bool:
    """Whether this very run of the script comes from -x (or an -ex), which gdb does after reading its files."""
    for kind, text in line.steps:
        words = gdb.string_to_argv(text) if kind in ("eval", "init-eval") else ["source", text]
        if len(words) > 1 and os.path.realpath(os.path.expanduser(words[-1])) == script:
            return kind in ("command", "eval")
    return False


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _load_core(path: str) -> None:
    """gdb before 16 takes the rest of the line as it is, later ones take it apart as a shell would."""
    try:
        gdb.execute(f"core-file {path}")
    except gdb.error:
        if path == _quoted(path)[1:-1] and not any(c.isspace() or c == "'" for c in path):
            raise
        gdb.execute(f"core-file {_quoted(path)}")
