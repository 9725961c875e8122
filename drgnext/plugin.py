"""What drgn loads by itself where dmods is installed (the entry-point group drgn.plugins): every command as %NAME."""

from __future__ import annotations

from typing import Any

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
    for name in commands.names():
        try:
            namespace.lookup(prog, name)
        except CommandNotFoundError:
            namespace.register(name, PromptCommand(name))


class PromptCommand:
    """drgn's Command protocol (drgn.commands.Command). Nothing of the command is imported before it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def description(self) -> str:
        return commands.find(self._name).summary

    def format_usage(self) -> str:
        return commands.find(self._name).parser().format_usage().partition(": ")[2].rstrip()

    def format_help(self, *, indent: str = "") -> str:
        from textwrap import indent as indented

        text = commands.find(self._name).parser().format_help().partition("\n\n")[2]
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
