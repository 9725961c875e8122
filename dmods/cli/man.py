"""The man page, made from the same data as docs/COMMANDS.md (scripts/docs writes both)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType

from dmods._engine import __version__
from dmods.cli.frontend import EXE, PROCESS, SYSROOT
from dmods.cli.reference import everything, takes_value, usage, value_name
from dmods.cli.verbs import SHELL_VERBS
from dmods.command import KERNEL, Argument, Command

_JSON = Argument("--json", action="store_true", help="one JSON object instead of text (docs/JSON.md)")
_HELP = Argument("-h", "--help", action="store_true", help="show the arguments and examples")

_DESCRIPTION = """\
`dmods` brings the memory commands of mdb, the Solaris debugger, to core dumps of Linux. It finds leaks, tells what an
address is, checks the heap, shows who allocated what, and says why a process or a kernel died.

Each command works in three places. In the shell it is `dmods` NAME CORE. In gdb (`dmods gdb` CORE) it is NAME, and
`mdb` NAME where gdb has a command of that name. In drgn it is `drgn -c` DUMP NAME, and %NAME at the prompt. Commands
for kernels need drgn. `dmods` starts it.

An address is 0x..., a symbol, symbol+offset or module`symbol+offset. In gdb and at drgn's prompt it is any expression.

Results go to the standard output. Notes, progress and errors go to the standard error output. On a terminal, lines are
broken to fit. Output to a file or a pipe is never broken."""

_STATUS = (
    ("0", "Done. Also when the reader of a pipe closed it."),
    ("1", "The command cannot be done, or its output cannot be written."),
    ("2", "The command line is wrong."),
    ("3", "Something was found, and an option such as --fail-on-leak asked for this status."),
    ("4", "No verdict is possible, because the dump lacks what must be checked."),
    ("130", "Interrupted."),
)
_ENVIRONMENT = (
    ("COLUMNS", "The width of the terminal, where it is not the real one."),
    ("NO_COLOR", "Headings are not bold."),
)
_SEE_ALSO = ("gdb(1)", "drgn(1)", "gcore(1)", "core(5)", "proc(5)")


def man_page(commands: Sequence[Command], verbs: Mapping[str, ModuleType], version: str) -> str:
    """Return the page in troff, for the macros of man(7)."""
    processes = [each for each in commands if KERNEL not in each.requires]
    kernels = [each for each in commands if KERNEL in each.requires]
    lines = [
        '.\\" Made by scripts/docs from the commands themselves: change those.',
        f'.TH DMODS 1 "" "dmods {_text(version)}" "User Commands"',
        ".ad l\n.nh",
        ".SH NAME",
        "dmods \\- mdb's memory commands for core dumps, in gdb, drgn and the shell",
        ".SH SYNOPSIS",
        *_synopsis(verbs),
        ".SH DESCRIPTION",
        *_prose(_DESCRIPTION),
        ".SH OPTIONS",
        "Every command takes:",
        *_arguments((_JSON, _HELP)),
        ".PP",
        "In the shell, commands for processes also take:",
        *_arguments((EXE, SYSROOT, PROCESS)),
        ".SH COMMANDS FOR PROCESSES",
        *(line for each in processes for line in _command(each)),
        ".SH COMMANDS FOR KERNELS",
        *(line for each in kernels for line in _command(each)),
        ".SH OTHER COMMANDS",
        *(line for name, verb in verbs.items() for line in _verb(name, verb)),
        ".SH EXIT STATUS",
        *(line for item in _STATUS for line in _item(f"\\fB{item[0]}\\fP", item[1])),
        ".SH ENVIRONMENT",
        *(line for item in _ENVIRONMENT for line in _item(f"\\fB{_code(item[0])}\\fP", item[1])),
        ".SH SEE ALSO",
        ", ".join(f"\\fB{name[:-3]}\\fP{name[-3:]}" for name in _SEE_ALSO),
    ]
    return "\n".join(lines) + "\n"


def shell_verbs() -> dict[str, ModuleType]:
    """Return the modules of the shell's verbs by name."""
    return {name: import_module(module) for name, module in SHELL_VERBS.items()}


def _synopsis(verbs: Iterable[str]) -> Iterator[str]:
    yield ".B dmods\n\\fINAME core\\fP [\\fIarguments\\fP]"
    for name in verbs:
        yield f".br\n.B dmods {_code(name)}\n[\\fIarguments\\fP]"
    yield ".br\n.B dmods help\n\\fINAME\\fP"


def _command(command: Command) -> Iterator[str]:
    yield f".SS {_code(command.name)}"
    line = " ".join([command.name, *map(usage, command.arguments)])
    yield f"\\fB{_code(line)}\\fP"
    yield ".PP"
    yield from _prose(command.summary[0].upper() + command.summary[1:] + ".")
    if command.description:
        yield ".PP"
        yield from _prose(command.description)
    yield from _arguments(command.arguments)
    if command.examples:
        yield ".PP\nExamples:"
        for example, shows in command.examples:
            yield from _item(f"\\fB{_code(example)}\\fP", shows)


def _verb(name: str, verb: ModuleType) -> Iterator[str]:
    yield f".SS {_code(name)}"
    yield f"\\fB{_code(verb.USAGE.partition('usage: ')[2].partition('   (')[0])}\\fP"
    yield ".PP"
    yield from _prose(verb.SUMMARY[0].upper() + verb.SUMMARY[1:] + ".")


def _arguments(arguments: Iterable[Argument]) -> Iterator[str]:
    for each in arguments:
        value = f" \\fI{_code(value_name(each))}\\fP" if takes_value(each) else ""
        options = each.names[0].startswith("-")
        names = [f"\\fB{_code(name)}\\fP{value}" for name in each.names] if options else [value.strip()]
        yield from _item(", ".join(names), each.help)


def _item(term: str, text: str) -> Iterator[str]:
    yield f".TP\n{term}"
    yield from _prose(text or "\\ ")


def _prose(text: str) -> Iterator[str]:
    """Yield paragraphs. An indented line "  word  what it is" becomes an item of a list."""
    inside = False
    for line in text.splitlines():
        item = re.match(r" +(\S+(?: \S+)*) {2,}(\S.*)", line)
        if not line.strip():
            yield ".PP"
        elif item is not None:
            yield f".TP\n\\fB{_code(item[1])}\\fP\n{_text(item[2])}"
        elif line.startswith(" "):
            yield _text(line.strip())
        else:
            if inside:
                yield ".PP"
            yield _text(line)
        inside = item is not None or (inside and line.startswith(" "))


def _code(text: str) -> str:
    """Return what the user types: a dash stays a dash when it is copied from the page."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")


def _text(text: str) -> str:
    """Return a line of text. Words between backquotes are bold."""
    parts = re.split(r"`([^`]+)`(?!\w)", text)
    plain = [part.replace("\\", "\\e").replace("`", "\\(ga") for part in parts[::2]]
    bold = [f"\\fB{_code(part)}\\fP" for part in parts[1::2]]
    line = plain[0] + "".join(b + p for b, p in zip(bold, plain[1:]))
    return f"\\&{line}" if line.startswith((".", "'")) else line


def main() -> None:
    """Write the page to stdout."""
    sys.stdout.write(man_page(everything(), shell_verbs(), __version__))


if __name__ == "__main__":
    main()
