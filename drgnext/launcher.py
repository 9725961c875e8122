#!/usr/bin/env python3
"""The script that `drgn -c vmcore memstat` runs.

Every launcher is a link to this file (`dmods link`). The name of the link is the name of the command. The file itself
takes the name as its first argument (`dmods memstat vmcore`). Started as a program (`./findleaks core.1603`), a link
does what `dmods findleaks core.1603` does.
"""

from __future__ import annotations

import os
import sys
from glob import glob
from typing import TYPE_CHECKING, NoReturn, Optional

if TYPE_CHECKING:
    from drgn import Program


def _become_dmods(script: str, name: str) -> NoReturn:
    root = os.path.dirname(os.path.dirname(os.path.realpath(script)))
    own = os.path.join(root, ".venv", "bin", "python")
    python = own if os.access(own, os.X_OK) else sys.executable
    found = filter(None, (root, os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(found)}
    os.execve(python, [python, "-m", "dmods", name, *sys.argv[1:]], environment)


def _start(script: str, prog: Optional[Program]) -> None:
    name = os.path.basename(script)
    if name == "launcher.py" and len(sys.argv) > 1:
        name = sys.argv.pop(1)
    if prog is None and len(sys.argv) > 1:
        _become_dmods(script, name)
    if prog is None:
        sys.exit("dmods: " + name + " is for drgn: drgn -c DUMP " + name)
    if sys.version_info < (3, 9):  # noqa: UP036 (drgn's Python may not be the one that installed dmods)
        sys.exit("dmods needs a drgn with Python 3.9 or newer, and this one has {}.{}".format(*sys.version_info[:2]))
    # drgn puts the launcher's folder first in sys.path. A json.py beside a dump must not replace Python's own.
    if sys.path[:1] == [os.path.dirname(os.path.abspath(script))]:
        del sys.path[0]
    # In a wheel the root is site-packages itself, which has all that is needed.
    root = os.path.dirname(os.path.dirname(os.path.realpath(script)))
    needs = glob(os.path.join(root, ".venv", "lib", "python3*", "site-packages"))
    sys.path += [path for path in [root, *needs] if path not in sys.path]
    from drgnext import launch

    sys.exit(launch.main(name, prog))


_start(__file__, globals().get("prog"))  # drgn defines it
