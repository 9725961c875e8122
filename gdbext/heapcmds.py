"""What `gdb -x heapcmds.py core.1603` reads. Finds the pack next to this file (the root's heapcmds.py is a link to it; the
user may have made more) and registers its commands."""

import os
import sys
from glob import glob


def _start(script):
    if sys.version_info < (3, 9):  # noqa: UP036 (gdb's Python is not the one that installed the pack)
        raise SystemExit("heapcmds.py: this gdb was built with Python %d.%d; 3.9 is the least" % sys.version_info[:2])
    # gdb leaves __file__ relative. In a wheel the root is site-packages itself, which holds all that is needed.
    root = os.path.dirname(os.path.dirname(os.path.realpath(script)))
    # After gdb's own entries: what gdb and its other extensions import must stay what it was.
    needs = glob(os.path.join(root, ".venv", "lib", "python3*", "site-packages"))
    sys.path += [path for path in [root, *needs] if path not in sys.path]
    import gdbext

    gdbext.install(os.path.realpath(script))


_start(__file__)
