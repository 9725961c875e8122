"""The script that `drgn -c vmcore memstat` runs.

Every launcher is a link to this file (`dmods link`). The name of the link is the name of the command. The file itself
takes the name as its first argument (`dmods memstat vmcore`).
"""

from __future__ import annotations

import os
import sys
from glob import glob
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from drgn import Program


def _start(script: str, prog: Optional[Program]) -> None:
    name = os.path.basename(script)
    if name == "launcher.py" and len(sys.argv) > 1:
        name = sys.argv.pop(1)
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
