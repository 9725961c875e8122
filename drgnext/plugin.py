"""What drgn loads by itself where dmods is installed (the entry-point group drgn.plugins): every command as %NAME."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from dmods import command as commands


def drgn_prog_set(prog: Any) -> None:
    """drgn's hook: a program has its core (or process, or kernel) now, and no debugging information yet. Has drgn look
    for a kernel's in more places; registers the commands, once in drgn's life."""
    from drgnext import session

    if session.is_kernel(prog):
        from drgnext.kernel import debuginfo

        debuginfo.prepare(prog)
    try:
        from drgn.commands import DEFAULT_COMMAND_NAMESPACE as namespace
        from drgn.commands import CommandNotFoundError
    except ImportError:  # a drgn without commands
        return
    made = [*map(PromptCommand, commands.names()), HelpCommand()]
    for one in made:
        try:
            namespace.lookup(prog, one.name)
        except CommandNotFoundError:
            namespace.register(one.name, one)
    _complete_names([one.name for one in made], prog)


class PromptCommand:
    """drgn's Command protocol (drgn.commands.Command). Nothing of the command is imported before it is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def description(self) -> str:
        return commands.find(self.name).summary

    def format_usage(self) -> str:
        return commands.find(self.name).parser().format_usage().partition(": ")[2].rstrip()

    def format_help(self, *, indent: str = "") -> str:
        from textwrap import indent as indented

        text = commands.find(self.name).parser().format_help().partition("\n\n")[2]
        return indented(text, indent).rstrip()

    def enabled(self, prog: Any) -> bool:
        """On either side: one that is for the other says so, which "command not found" would not."""
        return True

    def parse(self, source: str, /) -> Any:
        from drgn.commands import parse_shell_command

        return parse_shell_command(source)

    def run(self, prog: Any, name: str, args: Any, /, *, globals: dict[str, Any], **_more: Any) -> None:
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

    def run(self, prog: Any, name: str, args: Any, /, *, globals: dict[str, Any], **_more: Any) -> None:
        from drgnext import launch

        launch.at_prompt(args[0] if args else "dmods", prog, ["--help" if args else "--long"], globals)


def _complete_names(names: Sequence[str], prog: Any) -> None:
    """TAB at the prompt: names after %, and their options and choices. drgn puts its own completer there when its
    prompt begins, so ours waits for that, and leaves to it what is no command of ours."""
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
            # What readline takes for a word may begin later: at a dash, say. Only that is to be replaced.
            kept = readline.get_begidx() - (len(line) - len(line.rpartition(" ")[2].lstrip("%")))
            return offered[state][max(0, kept) :] if state < len(offered) else None

        readline.set_completer(complete)

    readline.set_startup_hook(begin)


def _offered(line: str, names: Sequence[str], prog: Any) -> list[str]:
    from dmods.completion import candidates
    from drgnext import launch

    name, space, rest = line.partition(" ")
    if not space or (name == "help" and " " not in rest):
        return [each for each in names if each.startswith(rest if space else name)]
    return candidates(launch.command_for(name, prog), line.rpartition(" ")[2]) if name in commands.names() else []
