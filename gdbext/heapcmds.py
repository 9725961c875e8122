"""What `gdb -x heapcmds.py core.1603` reads: finds the pack that this file is in, and registers its commands.

The heapcmds.py at the root is a link to it, and the user may have made more (`dmods link`)."""

import os
import sys
from glob import glob


def _start(script: str) -> None:
    if sys.version_info < (3, 9):  # noqa: UP036 (gdb's Python is not the one that installed the pack)
        have = "{}.{}".format(*sys.version_info[:2])
        raise RuntimeError("dmods needs a gdb with Python 3.9 or newer, and this one has " + have)
    # gdb leaves __file__ relative. In a wheel the root is site-packages itself, which holds all that is needed.
    root = os.path.dirname(os.path.dirname(os.path.realpath(script)))
    # After gdb's own entries: what gdb and its other extensions import must stay what it was.
    needs = glob(os.path.join(root, ".venv", "lib", "python3*", "site-packages"))
    sys.path += [path for path in [root, *needs] if path not in sys.path]
    import gdbext

    gdbext.install(os.path.realpath(script))


_start(__file__)
