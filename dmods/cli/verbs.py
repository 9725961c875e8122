"""The verbs of the shell: what `dmods` does besides running commands."""

from __future__ import annotations

# Each is a module with ``run(words) -> exit status``, SUMMARY and USAGE. None is imported before it is needed.
SHELL_VERBS = {
    "run": "dmods.cli.run",
    "gdb": "dmods.cli.gdb_starter",
    "drgn": "dmods.cli.drgn_starter",
    "mdb": "dmods.cli.mdb_shell",
    "link": "dmods.cli.link",
    "complete": "dmods.cli.completion",
}
