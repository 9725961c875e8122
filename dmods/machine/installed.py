"""Find the parts of dmods and the debuggers on this machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Optional

from dmods.base import raw_names
from dmods.base.regex import regex
from dmods.errors import UserError

PACKAGE = Path(__file__).resolve().parents[1]
# In a checkout and in site-packages the front ends lie beside this package. Nothing else in dmods knows about them.
ROOT = PACKAGE.parent
FOR_GDB = ROOT / "gdbext" / "heapcmds.py"
FOR_DRGN = ROOT / "drgnext" / "launcher.py"
AUDITOR = str(PACKAGE / "libdmods_audit.so")
_ENDS_A_PATH = regex(r"[\s:]")


def preloadable(library: str) -> str:
    """Return a path by which LD_PRELOAD can name the library.

    ld.so ends a path at a blank or a colon, and knows no quotes (ld.so(8)). A library in such a folder has a link in a
    folder of the user's that nobody else can write. Raises UserError where there is no place for one.
    """
    if not _ENDS_A_PATH.search(library):
        return library
    folder = _own_folder()
    link = f"{folder}/{hashlib.sha256(raw_names.key(library)).hexdigest()[:16]}-{os.path.basename(library)}"
    if folder is None or _ENDS_A_PATH.search(link):
        raise UserError(
            f"LD_PRELOAD cannot name {library}", "install dmods in a folder without blanks and colons in its path"
        )
    with suppress(FileExistsError):
        os.symlink(library, link)
    return link


def _own_folder() -> Optional[str]:
    """Return a folder that only the user can write, or None where it does not exist and cannot be made."""
    folder = os.path.join(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), f"dmods-{os.getuid()}")
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
    except OSError:
        return None
    safe = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if safe else None


def find_drgn() -> Optional[str]:
    """Return the path of the drgn beside this Python, else of the drgn in PATH, else None."""
    beside = Path(sys.executable).with_name("drgn")
    return str(beside) if beside.exists() else shutil.which("drgn")


def drgn_install_command() -> str:
    """Return the command that installs drgn for this Python."""
    return f"{sys.executable} -m pip install drgn"


def setup_advice(owner: str = "") -> str:
    """Return what the user must do where a part of dmods is missing. `owner` names the Python that lacks it."""
    if _by_pip():
        return f"install dmods again with pip, for {owner or 'the Python that is to use it'}"
    return f"run {ROOT / 'scripts' / 'setup'}"


def auditor_advice() -> str:
    """Return what the user must do where the auditor is missing: pip could not compile it (scripts/backend.py)."""
    if _by_pip():
        return "install gcc and libc6-dev, then dmods again; pip install -v shows why the auditor cannot be compiled"
    return setup_advice()


def _by_pip() -> bool:
    return ROOT.name in ("site-packages", "dist-packages")
