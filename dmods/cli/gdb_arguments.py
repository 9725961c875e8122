"""gdb's command line, read the way gdb reads it (gdb/main.c: getopt_long_only without short options).

`gdb core.1603` leaves nothing behind in gdb but an error message. The name of the core has to come from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.dataclass import dataclass, field
from dmods.modules.elf import ET_DYN, ET_EXEC, MAGIC

PROGRAM_TYPES = (ET_EXEC, ET_DYN)
# The meaning of each option that takes a value (gdb/main.c, long_options[]; gdb 11 to 16).
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
    "cd": "cd",
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
# The options that take no value.
_FLAGS = """args async batch batch-silent configuration dbx f fullname h help n nh no-escape-args noasync nowindows nw
nx q quiet r readnever readnow return-child-result silent statistics tui v version w windows write""".split()  # noqa: SIM905
# Options of glibc's dynamic linker without a value (elf/rtld.c).
_LOADER_FLAGS = ("--list", "--verify", "--inhibit-cache", "--list-diagnostics", "--list-tunables")


@dataclass
class CommandLine:
    """A gdb command line.

    `files` are the words that are not options: a program, then a core or a process id. `steps` are the commands in
    order, as (kind, text) with the kind "command" (-x), "eval" (-ex), "init" (-ix) or "init-eval" (-iex). `others` are
    all words but gdb's name, `files` and a core after -c. `folder` is where gdb goes first (-cd).
    """

    files: list[str] = field(default_factory=list)
    core: Optional[str] = None
    executable: Optional[str] = None
    pid: Optional[str] = None
    args: bool = False
    batch: bool = False
    folder: str = ""
    steps: list[tuple[str, str]] = field(default_factory=list)
    others: list[str] = field(default_factory=list, compare=False)


def without_loader(words: Sequence[str]) -> list[str]:
    """Return the words from gdb's own name on.

    A gdb that brings its own C library is started by its own dynamic linker: `ld.so --library-path DIR gdb ...`.
    """
    if not words or not words[0].rpartition("/")[2].startswith(("ld-linux", "ld.so")):
        return list(words)
    at = 1
    while at < len(words) and words[at].startswith("--"):
        at += 1 if words[at] in _LOADER_FLAGS or "=" in words[at] else 2
    return list(words[at:])


def parse(argv: Sequence[str]) -> CommandLine:
    """Return the meaning of `argv`, which begins with gdb's own name. gdb itself reports wrong options."""
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
            line.others += [word, *words]
            break
        taken = [word]
        if name in _VALUED:
            if not equals and words:
                value = words.pop(0)
                taken.append(value)
            _take(line, _VALUED[name], value)
        line.batch = line.batch or name in ("batch", "batch-silent")
        if _VALUED.get(name) != "core":
            line.others += taken
    return line


def elf_type(path: str) -> Optional[int]:
    """Return the ELF type (e_type) of a file, or None where it is not an ELF file."""
    try:
        with open(path, "rb") as file:
            head = file.read(18)
    except OSError:
        return None
    if len(head) < 18 or head[:4] != MAGIC:
        return None
    return int.from_bytes(head[16:18], "little" if head[5] == 1 else "big")


def _complete(name: str) -> str:
    """Return the option that `name` abbreviates, as getopt reads it: a prefix of names that mean the same."""
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
    elif kind == "cd":
        line.folder = value
    elif kind:
        line.steps.append((kind, value))
