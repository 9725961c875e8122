"""``dmods drgn ...``: drgn, with every dmods command by its name, in any folder and without links."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Optional

from dmods.cli.frontend import become, say
from dmods.cli.gdb_arguments import elf_type
from dmods.command import command_names
from dmods.errors import UserError
from dmods.machine.installed import FOR_DRGN, drgn_install_command, find_drgn
from dmods.modules.elf import ET_CORE

SUMMARY = "start drgn with the commands in it, on a kernel's dump or a core: `dmods drgn -c vmcore memstat`"
USAGE = "usage: dmods drgn [DRGN'S ARGUMENTS]   (`dmods drgn vmcore`, `dmods drgn -c vmcore NAME`)"
MDB = "mdb"  # what the launcher runs beside the commands: a line of mdb's language
# drgn's options that take a value in the next word (drgn 0.1.0: drgn/cli.py).
_VALUED = """-c --core -p --pid --qemu -s --symbols --extra-symbols --try-symbols-by --no-symbols-by --debug-directory
--debug-link-directory --kernel-directory --architecture --vmcoreinfo --log-level -e""".split()  # noqa: SIM905
# The first bytes of a compressed kernel dump (makedumpfile's struct disk_dump_header, and its flattened form).
_KDUMP = (b"KDUMP   ", b"makedump")


def run(words: Sequence[str]) -> int:
    """Replace this process by drgn. Raises UserError where there is no drgn."""
    if list(words) in (["-h"], ["--help"]):
        say(f"{USAGE}\n\n{SUMMARY}; `dmods drgn -q --help` has drgn's own arguments")
        return 0
    return become(_found("dmods drgn"), for_drgn(words))


def run_command(dump: str, name: str, words: Sequence[str]) -> int:
    """Replace this process by `drgn -c DUMP NAME WORDS`. Raises UserError where there is no drgn."""
    found = _found(f"{name} of a kernel dump", f"drgn -c {dump} {name}")
    return become(found, ["-q", "-c", dump, str(FOR_DRGN), name, *words])


def for_drgn(words: Sequence[str]) -> list[str]:
    """Return the words for drgn: a dump given alone becomes `-c DUMP`, and a command's name its launcher.

    A file of the user's with the name of a command stays what it is: a script for drgn.
    """
    place = _first_argument(words)
    if place is not None and _is_dump(words[place]):
        words = [*words[:place], "-c", *words[place:]]
        place = _first_argument(words)
    if place is None or os.path.isfile(words[place]) or words[place] not in (*command_names(), MDB):
        return list(words)
    return [*words[:place], str(FOR_DRGN), *words[place:]]


def _first_argument(words: Sequence[str]) -> Optional[int]:
    """Return the place of the first word that is neither an option of drgn's nor its value. -e leaves no place."""
    place = 0
    while place < len(words):
        if words[place] == "-e":
            return None
        if not words[place].startswith("-"):
            return place
        place += 2 if words[place] in _VALUED else 1
    return None


def _is_dump(path: str) -> bool:
    if elf_type(path) == ET_CORE:
        return True
    try:
        with open(path, "rb") as file:
            return file.read(8) in _KDUMP
    except OSError:
        return False


def _found(what: str, then: str = "") -> str:
    drgn = find_drgn()
    if drgn is None:
        how = drgn_install_command()
        raise UserError(f"{what} needs drgn, and there is no drgn here", f"{how}; then: {then}" if then else how)
    return drgn
