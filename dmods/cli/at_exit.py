"""Make the profile of a program under `dmods run --profile-at-exit`, out of the small core that the auditor wrote.

The auditor (audit/dump/leave.c) starts this in a copy of the process. Nobody waits for an answer on standard output,
and the program's terminal may be gone. So it says one line on standard error where something is wrong, and keeps the
small core then: `dmods profile` makes the same profile of it. With `--audit maps` there is a second file, x.maps.pb.gz.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Optional

from dmods.cli.frontend import say
from dmods.corefile.target import CoreFile
from dmods.errors import DmodsError
from dmods.profile.forms import form, numbered, write_file
from dmods.profile.model import SPACE
from dmods.profile.sources import AUDITOR, MAPS, profile_of
from dmods.profile.view import FUNCTION, View
from dmods.records.mapped import recorded_maps

_NO_THREAD = "the core has no thread"  # the small core has none, and a profile needs none


def main(words: Optional[Sequence[str]] = None) -> None:
    """Write the profile, or exit with 1. The words are packages, core, file, pid, number, and "own" or "other"."""
    _packages, core, file, pid, number, whose = sys.argv[1:] if words is None else words
    try:
        _write(core, _named(file, pid, number, whose == "own"))
    except (DmodsError, MemoryError, OSError) as error:
        say(f"dmods: no profile: {error}", sys.stderr)
        say(f"       `dmods profile {core} -o FILE` makes it from what the auditor left", sys.stderr)
        sys.exit(1)
    os.unlink(core)


def _named(file: str, pid: str, number: str, own: bool) -> str:
    """Return the name of the file: %p is the pid, %n the number of the profile of this process.

    A process that the program started does not overwrite the program's own file.
    """
    name = file.replace("%p", pid).replace("%n", number)
    return name if own or "%p" in file else numbered(name, pid)


def _write(core: str, file: str) -> None:
    write, target = form(file), CoreFile(core)
    maps = recorded_maps(target) is not None
    for source in (MAPS, AUDITOR) if maps else (AUDITOR,):
        profile = profile_of(target, source)
        profile.notes = [note for note in profile.notes if not note.startswith(_NO_THREAD)]
        name = numbered(file, MAPS) if source == MAPS else file
        write_file(View(profile, SPACE, None, None, FUNCTION), write, name)
