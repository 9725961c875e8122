"""Find the parts of dmods and the debuggers on this machine."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Optional

PACKAGE = Path(__file__).resolve().parents[1]
# In a checkout and in site-packages the front ends lie beside this package. Nothing else in dmods knows about them.
ROOT = PACKAGE.parent
FOR_GDB = ROOT / "gdbext" / "heapcmds.py"
FOR_DRGN = ROOT / "drgnext" / "launcher.py"
AUDITOR = str(PACKAGE / "libdmods_audit.so")


def find_drgn() -> Optional[str]:
    """Return the path of the drgn beside this Python, else of the drgn in PATH, else None."""
    beside = Path(sys.executable).with_name("drgn")
    return str(beside) if beside.exists() else shutil.which("drgn")


def drgn_install_command() -> str:
    """Return the command that installs drgn for this Python."""
    return f"{sys.executable} -m pip install drgn"


def setup_advice(owner: str = "") -> str:
    """Return what the user must do where a part of dmods is missing. `owner` names the Python that lacks it."""
    if ROOT.name in ("site-packages", "dist-packages"):
        return f"install dmods again with pip, for {owner or 'the Python that is to use it'}"
    return f"run {ROOT / 'scripts' / 'setup'}"
