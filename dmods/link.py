"""``dmods link DIR``: what gdb and drgn are given, linked to where the user works."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dmods import command
from dmods.errors import UsageError, UserError

# In a checkout as in site-packages, the front ends lie beside this package, which knows nothing else of them.
ROOT = Path(__file__).resolve().parents[1]
FOR_GDB = ROOT / "gdbext" / "heapcmds.py"
FOR_DRGN = ROOT / "drgnext" / "launcher.py"

SUMMARY = "put heapcmds.py and the commands into a folder, for `gdb -x heapcmds.py CORE` and `drgn -c DUMP NAME` there"
USAGE = "usage: dmods link DIR   (`dmods link .`: here)"


def run(words: Sequence[str]) -> int:
    """Says what it linked, a line each. 1 where a file of the user's has the name of one: that is left alone."""
    if words and words[0] in ("-h", "--help"):
        print(f"{USAGE}\n\n{SUMMARY}")
        return 0
    if len(words) != 1 or words[0].startswith("-"):
        raise UsageError("link: into which folder?", USAGE)
    folder = Path(words[0])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return max([_link(link, to) for link, to in _links(folder)])
    except OSError as error:
        raise UserError(f"cannot link into {folder}: {error.strerror}", "give a folder of yours: " + USAGE) from None


def _links(folder: Path) -> Iterator[tuple[Path, Path]]:
    yield folder / "heapcmds.py", FOR_GDB
    for name in command.names():
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
