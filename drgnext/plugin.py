"""drgn's plugin: every command as %NAME. drgn loads it where dmods is installed (entry-point group drgn.plugins)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from dmods.cli.drgn_starter import MDB
from dmods.cli.mdb import mask_pipes
from dmods.command import command_names, find_command

if TYPE_CHECKING:
    from drgn import Program
    from drgn.commands import ParsedCommand


def drgn_prog_set(prog: Program) -> None:
    """Have drgn look for a kernel's debugging information in more places, and register the commands.

    drgn calls this once the program has its core, its process or its kernel, and before it looks for debugging
    information. The commands are registered once in drgn's life.
    """
    from drgnext import session

    if session.is_kernel(prog):
        from drgnext.kernel.dump import debuginfo

        debuginfo.prepare(prog)
    try:
        from drgn.commands import DEFAULT_COMMAND_NAMESPACE as namespace
        from drgn.commands import CommandNotFoundError
    except ImportError:  # a drgn without commands
        return
    made = [*map(PromptCommand, command_names()), HelpCommand(), MdbCommand()]
    for one in made:
        try:
            namespace.lookup(prog, one.name)
        except CommandNotFoundError:
            namespace.register(one.name, one)
    _complete_names([one.name for one in made], prog)


# A word of an expression, whose quotes are not the shell's: prog["init_task"]
_QUOTED_INDEX = re.compile(r"""[^\W\d][^"']*\[\s*["']""")
# Stands for a pipe between commands while drgn splits the line.
_PIPE = "\x01"


class PromptCommand:
    """Implements drgn.commands.Command. A command is not imported before the user asks for it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def description(self) -> str:
        return find_command(self.name).summary

    def format_usage(self) -> str:
        return find_command(self.name).parser().format_usage().partition(": ")[2].rstrip()

    def format_help(self, *, indent: str = "") -> str:
        from textwrap import indent as indented

        text = find_command(self.name).parser().format_help().partition("\n\n")[2]
        return indented(text, indent).rstrip()

    def enabled(self, prog: Program) -> bool:
        """Return True: a command for the other kind of dump says so itself, which "command not found" would not."""
        return True

    def parse(self, source: str, /) -> ParsedCommand[Sequence[str]]:
        from drgn.commands import ParsedCommand, parse_shell_command

        plain, raw = parse_shell_command(source), parse_shell_command(source, unquote=False)
        words = [word if _QUOTED_INDEX.match(word) else bare for bare, word in zip(plain.args, raw.args)]
        return ParsedCommand(words, plain.redirections, plain.pipeline)

    def run(self, prog: Program, name: str, args: Sequence[str], /, *, globals: dict[str, Any], **_more: Any) -> None:
        from drgnext import launch

        launch.at_prompt(name, prog, args, globals)


class HelpCommand(PromptCommand):
    """``%help [NAME]``: drgn has none of its own."""

    def __init__(self) -> None:
        super().__init__("help")

    def description(self) -> str:
        return "what a command does, or which there are"

    def format_usage(self) -> str:
        return "%help [NAME]"

    def format_help(self, *, indent: str = "") -> str:
        return f"{indent}{self.description()}"

    def run(self, prog: Program, name: str, args: Sequence[str], /, *, globals: dict[str, Any], **_more: Any) -> None:
        from drgnext import launch

        launch.at_prompt(args[0] if args else "dmods", prog, ["--help" if args else "--long"], globals)


class MdbCommand(PromptCommand):
    """``%mdb LINE``: a line of mdb's language."""

    def __init__(self) -> None:
        super().__init__(MDB)

    def description(self) -> str:
        return "a line of mdb's language: ADDR::whatis, ::walk leak | ::bufctl_audit"

    def format_usage(self) -> str:
        return "%mdb ADDR::NAME [ARGUMENTS], %mdb ::walk NAME | ::NAME"

    def format_help(self, *, indent: str = "") -> str:
        return f"{indent}{self.description()}"

    def parse(self, source: str, /) -> ParsedCommand[Sequence[str]]:
        """Return the line as one argument. A pipe to another command belongs to it; other pipes are the shell's."""
        from dataclasses import replace  # noqa: TID251 (drgn's own class)

        from drgn.commands import parse_shell_command

        parsed = parse_shell_command(mask_pipes(source, command_names(), _PIPE), unquote=False)
        return replace(parsed, args=[" ".join(parsed.args).replace(_PIPE, "|")])


def _complete_names(names: Sequence[str], prog: Program) -> None:
    """Complete names after % at the prompt, and their options and choices.

    drgn installs its own completer when its prompt begins. Ours waits for that, and leaves all other lines to it.
    """
    try:
        from drgn.internal.repl import readline
    except ImportError:
        return

    def begin() -> None:
        readline.set_startup_hook(None)
        theirs = readline.get_completer()

        def complete(text: str, state: int) -> Optional[str]:
            line = readline.get_line_buffer()[: readline.get_endidx()]
            if not line.startswith("%"):
                return theirs(text, state) if theirs is not None else None
            offered = _offered(line[1:], names, prog)
            # readline's word may begin later, at a dash for example. Only that word is replaced.
            kept = readline.get_begidx() - (len(line) - len(line.rpartition(" ")[2].lstrip("%")))
            return offered[state][max(0, kept) :] if state < len(offered) else None

        readline.set_completer(complete)

    readline.set_startup_hook(begin)


def _offered(line: str, names: Sequence[str], prog: Program) -> list[str]:
    from dmods.cli.completion import candidates
    from drgnext import launch

    name, space, rest = line.partition(" ")
    if not space or (name == "help" and " " not in rest):
        return [each for each in names if each.startswith(rest if space else name)]
    return candidates(launch.command_for(name, prog), line.rpartition(" ")[2]) if name in command_names() else []
