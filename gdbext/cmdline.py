"""gdb's own command line, read the way gdb reads it (gdb/main.c: getopt_long_only without short options).

`gdb core.1603` leaves nothing behind in gdb but an error message, so the name of the core has to come from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

# Canonical name of each option that takes a value (gdb/main.c, long_options[]; gdb 11 to 16).
_VALUED = {
    "symbols": "symbols",
    "s": "symbols",
    "exec": "exec",
    "e": "exec",
    "se": "exec",
    "core": "core",
    "c": "core",
    "pid": "pid",
    "p": "pid",
    "command": "command",
    "x": "command",
    "eval-command": "eval",
    "ex": "eval",
    "init-command": "init",
    "ix": "init",
    "init-eval-command": "init-eval",
    "iex": "init-eval",
    "early-init-command": "init",
    "eix": "init",
    "early-init-eval-command": "init-eval",
    "eiex": "init-eval",
    "annotate": "",
    "baud": "",
    "b": "",
    "cd": "",
    "d": "",
    "D": "",
    "data-directory": "",
    "directory": "",
    "i": "",
    "interpreter": "",
    "l": "",
    "tty": "",
    "ui": "",
}
# Those that take none.
_FLAGS = """args async batch batch-silent configuration dbx f fullname h help n nh no-escape-args noasync nowindows nw
nx q quiet r readnever readnow return-child-result silent statistics tui v version w windows write""".split()  # noqa: SIM905


# Of glibc's dynamic linker, when it is told what to run: elf/rtld.c.
_LOADER_FLAGS = ("--list", "--verify", "--inhibit-cache", "--list-diagnostics", "--list-tunables")


@dataclass
class CommandLine:
    """``files`` are the arguments that are no options: a program, then a core or a process id. ``steps`` are the
    commands in order: (kind, text) with kind "command" (-x), "eval" (-ex), "init" (-ix) or "init-eval" (-iex)."""

    files: list[str] = field(default_factory=list)
    core: Optional[str] = None
    executable: Optional[str] = None
    pid: Optional[str] = None
    args: bool = False
    steps: list[tuple[str, str]] = field(default_factory=list)


def without_loader(words: Sequence[str]) -> list[str]:
    """A gdb that brings its own C library is started by its own dynamic linker: `ld.so --library-path DIR gdb ...`."""
    if not words or not words[0].rpartition("/")[2].startswith(("ld-linux", "ld.so")):
        return list(words)
    at = 1
    while at < len(words) and words[at].startswith("--"):
        at += 1 if words[at] in _LOADER_FLAGS or "=" in words[at] else 2
    return list(words[at:])


def parse(argv: Sequence[str]) -> CommandLine:
    """``argv`` with gdb's own name first. Never raises: a command line that gdb refused never gets here."""
    line = CommandLine()
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word == "--":
            line.files += words
            break
        if len(word) < 2 or word[0] != "-":
            line.files.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = _complete(name)
        if name == "args":
            # gdb stops looking for options here: a program and its own arguments follow.
            line.args = True
            line.files += words[:1]
            break
        if name in _VALUED:
            if not equals and words:
                value = words.pop(0)
            _take(line, _VALUED[name], value)
    return line


def _complete(name: str) -> str:
    """The option that ``name`` abbreviates, as getopt has it: its name, or a prefix of names that mean the same."""
    if name in _VALUED or name in _FLAGS:
        return name
    matches = [option for option in (*_VALUED, *_FLAGS) if option.startswith(name)]
    meanings = {_VALUED.get(option, option) for option in matches}
    return matches[0] if len(meanings) == 1 else name


def _take(line: CommandLine, kind: str, value: str) -> None:
    if kind == "core":
        line.core = value
    elif kind in ("exec", "symbols"):
        line.executable = line.executable or value
    elif kind == "pid":
        line.pid = value
    elif kind:
        line.steps.append((kind, value))
