"""The verbs of the shell: what `dmods` does besides running commands."""

from __future__ import annotations

import os
from collections.abc import Sequence

# Each is a module with ``run(words) -> exit status``, SUMMARY and USAGE. None is imported before it is needed.
SHELL_VERBS = {
    "run": "dmods.cli.run",
    "gdb": "dmods.cli.gdb_starter",
    "drgn": "dmods.cli.drgn_starter",
    "mdb": "dmods.cli.mdb_shell",
    "link": "dmods.cli.link",
    "cache": "dmods.cli.cache",
    "complete": "dmods.cli.completion",
}

#: Verbs that take a dump, and so its other names (coredump:PID).
TAKE_DUMPS = ("gdb", "drgn", "mdb", "triage")
#: What does `dmods triage` where it is about many dumps.
MANY_DUMPS = "dmods.cli.triage_many"
_OF_MANY = ("--db", "--report", "--jobs", "--dask", "--retry", "--push")
_WITH_VALUE = (
    "-o",
    "--output",
    "--json",
    "--checks",
    "--seconds",
    "--exe",
    "--sysroot",
    "--max-size",
    "-p",
    "--pid",
    "-s",
    "--symbols",
    "--btf",
    "--architecture",
)


def about_many_dumps(words: Sequence[str]) -> bool:
    """Return whether the words behind `dmods triage` are about many dumps: a folder, several dumps, or a database."""
    if "-" in words or any(word.split("=")[0] in _OF_MANY for word in words):
        return True
    values = {place + 1 for place, word in enumerate(words) if word in _WITH_VALUE}
    named = [word for place, word in enumerate(words) if not word.startswith("-") and place not in values]
    return (
        any(os.path.isdir(word) and not _is_one_problem(word) for word in named) or sum(map(os.path.isfile, named)) > 1
    )


def _is_one_problem(folder: str) -> bool:
    """Return whether a folder is what abrt keeps of one crash, or CRIU of one checkpoint."""
    from dmods.corefile.archives import is_images
    from dmods.corefile.crash_handlers.abrt import core_in

    return core_in(folder) is not None or is_images(folder)
