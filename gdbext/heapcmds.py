"""The script that `gdb -x heapcmds.py core.1603` runs: it finds dmods and registers its commands.

heapcmds.py at the project's root is a link to this file. `dmods link` makes more links.
"""

import os
import sys
from glob import glob


def _start(script: str) -> None:
    if sys.version_info < (3, 9):  # noqa: UP036 (gdb's Python may not be the one that installed dmods)
        have = "{}.{}".format(*sys.version_info[:2])
        raise RuntimeError("dmods needs a gdb with Python 3.9 or newer, and this one has " + have)
    # gdb leaves __file__ relative. In a wheel the root is site-packages itself, which holds every package.
    root = os.path.dirname(os.path.dirname(os.path.realpath(script)))
    # The root goes behind gdb's own entries, so that gdb and its other extensions still import their own modules.
    needs = glob(os.path.join(root, ".venv", "lib", "python3*", "site-packages"))
    sys.path += [path for path in [root, *needs] if path not in sys.path]
    import gdbext

    gdbext.install(os.path.realpath(script))


# A script that sources this one leaves its own name in __file__.
_start(_start.__code__.co_filename)
