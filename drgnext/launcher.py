"""What `drgn -c vmcore memstat` runs. Every launcher is a link to this file (`dmods link`), and its name is the
command's; the file itself takes it as its first argument (`dmods memstat vmcore`)."""

import os
import sys
from glob import glob


def _start(script: str, prog: object) -> None:
    name = os.path.basename(script)
    if name == "launcher.py" and len(sys.argv) > 1:
        name = sys.argv.pop(1)
    if prog is None:
        sys.exit("dmods: " + name + " is for drgn: drgn -c DUMP " + name)
    if sys.version_info < (3, 9):  # noqa: UP036 (drgn's Python is not the one that installed the pack)
        sys.exit("dmods needs a drgn with Python 3.9 or newer, and this one has {}.{}".format(*sys.version_info[:2]))
    # drgn puts the launcher's folder before all others: what lies beside a dump must not become our json.py.
    if sys.path[:1] == [os.path.dirname(os.path.abspath(script))]:
        del sys.path[0]
    # In a wheel the root is site-packages itself, which holds all that is needed.
    root = os.path.dirname(os.path.dirname(os.path.realpath(script)))
    needs = glob(os.path.join(root, ".venv", "lib", "python3*", "site-packages"))
    sys.path += [path for path in [root, *needs] if path not in sys.path]
    from drgnext import launch

    sys.exit(launch.main(name, prog))


_start(__file__, globals().get("prog"))  # which drgn puts there
