"""What the front ends share: what becomes of an exception, and whether dmods is set up at all. (gdb has streams and
errors of its own: gdbext/bridge.py.)"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Callable, Optional

from dmods.command import Argument
from dmods.errors import UsageError, UserError
from dmods.render import printable

EXE = Argument(
    "--exe", metavar="FILE", help="the program that dumped the core, where it cannot be found or is not the one"
)
SYSROOT = Argument("--sysroot", metavar="DIR", help="where the files of the machine that dumped are, instead of /")

# What scripts/setup (or pip) puts there.
_FROM_SETUP = ("dmods._engine", "elftools")


def guard(work: Callable[[], int], who: str) -> int:
    """``work``'s exit status: its own, or 1 cannot, 2 usage, 130 interrupted. What the user can mend is told without a
    traceback; that ``who``, this Python's program, lacks what scripts/setup builds is that, too."""
    try:
        return work()
    except ImportError as error:
        try:
            check_set_up(who)
        except UserError as reason:
            complain(reason)
            return 1
        if error.name != "dmods._engine":
            raise
        complain(not_set_up(error, who))  # an engine older than what asks it: pulled, and not built again
        return 1
    except UserError as error:
        complain(error)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def complain(error: UserError) -> None:
    print(f"dmods: {printable(error.what)}\n  {printable(error.how)}", file=sys.stderr)


def guard_program(work: Callable[[], int], who: str) -> int:
    """``guard`` for a whole program: a reader that has seen enough (| head) ends it well."""
    try:
        return guard(work, who)
    except BrokenPipeError:  # Python would complain again when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def check_set_up(who: str) -> None:
    """Raises UserError where this Python, ``who``'s, cannot load what dmods needs: scripts/setup was not run."""
    try:
        for name in _FROM_SETUP:
            import_module(name)  # of elftools only the outermost, which is empty
    except ImportError as error:
        raise not_set_up(error, who) from None


def not_set_up(error: ImportError, who: str) -> UserError:
    root = Path(__file__).resolve().parents[1]
    installed = root.name in ("site-packages", "dist-packages")
    how = f"pip install it again, with the Python of {who}" if installed else f"run {root / 'scripts' / 'setup'}"
    return UserError(f"dmods is not set up for {who}: {error}", how)


def check_sysroot(sysroot: Optional[str]) -> None:
    if sysroot is not None and not os.path.isdir(sysroot):
        raise UserError(f"{sysroot} is not a folder", "--sysroot takes the folder that holds the other machine's /")


def safe_output() -> None:
    """A name that the terminal's encoding lacks must not end the listing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
