"""``dmods link DIR``: links that gdb and drgn are given, in the folder where the user works."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dmods.cli.frontend import say
from dmods.command import command_names, find_command
from dmods.errors import UsageError, UserError
from dmods.machine.installed import FOR_DRGN, FOR_GDB, ROOT, find_drgn

SUMMARY = "link heapcmds.py, memstat and findleaks into a folder: `gdb -x heapcmds.py CORE`, `drgn -c DUMP memstat`"
USAGE = "usage: dmods link DIR [NAME...]   (`dmods link .`: here; NAME: other commands for drgn; --all: all of them)"
_SCRIPT = "heapcmds.py"
# A command of the README's that drgn runs from the current folder. `dmods drgn` needs no link for any command.
_USUAL = ("findleaks", "memstat")
_ALL = "--all"


def run(words: Sequence[str]) -> int:
    """Link, and print a line for each link. Return 1 where the user has a file of that name: it is left alone."""
    if words and words[0] in ("-h", "--help"):
        say(f"{USAGE}\n\n{SUMMARY}")
        return 0
    if not words or words[0].startswith("-"):
        raise UsageError("link: into which folder?", USAGE)
    folder = Path(words[0])
    names = _names(words[1:])
    if not folder.is_dir():
        what = "is not a folder" if os.path.lexists(folder) else "does not exist"
        raise UserError(f"{folder} {what}", "give a folder that exists: `dmods link .` links into this one")
    try:
        status = max([_link(link, to) for link, to in _links(folder, names)])
    except OSError as error:
        raise UserError(f"cannot link into {folder}: {error.strerror}", "give a folder of yours: " + USAGE) from None
    _say_where_drgn_is()
    return status


def _names(words: Sequence[str]) -> Sequence[str]:
    """Return the names of the commands to link. Raises UsageError for a name that is not a command."""
    if _ALL in words:
        return command_names()
    for word in words:
        if word.startswith("-"):
            raise UsageError(f"link does not know {word}", USAGE)
        find_command(word)
    return [*_USUAL, *words]


def _links(folder: Path, names: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    yield folder / _SCRIPT, FOR_GDB
    for name in names:
        # At the project's own root a package has the name: `dmods -l` is for everywhere else.
        if not ((folder / name).is_dir() and (folder / name).resolve() == ROOT / name):
            yield folder / name, FOR_DRGN


def _link(link: Path, to: Path) -> int:
    if link.exists() and link.samefile(to):
        pass  # there already; at the project's root it is a relative link, which stays
    elif link.exists() and not link.is_symlink():
        print(f"dmods: {link} is there already, and yours: left alone", file=sys.stderr)
        return 1
    else:
        if link.is_symlink():
            link.unlink()  # a launcher of another dmods, or a link to nothing
        os.symlink(to, link)
    print(link)
    return 0


def _say_where_drgn_is() -> None:
    drgn = find_drgn()
    if drgn is not None and shutil.which("drgn") is None:
        folder = os.path.dirname(drgn)
        say(
            f"dmods: drgn is not in PATH. It is in {folder}. Type: export PATH={folder}:$PATH\n"
            "  or start it as `dmods drgn -c DUMP NAME`, which needs neither PATH nor links",
            sys.stderr,
        )
