"""The PEP 517 backend by which pip builds dmods from its sources: maturin, after it has compiled the auditor.

maturin knows only the engine. A wheel without the auditor would have no `dmods run`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

# maturin itself does all that is not defined here. Its own check knows only "maturin" as the name of a backend.
from maturin import *  # noqa: F403
from maturin import build_editable as _build_editable
from maturin import build_wheel as _build_wheel

os.environ["MATURIN_NO_MISSING_BUILD_BACKEND_WARNING"] = "1"
_DATA = Path("dmods._engine.data")  # maturin's name for it. Its content goes to the environment's root.
_MAN = Path("share", "man", "man1")

_Settings = Optional[Mapping[str, Any]]


def build_wheel(directory: str, settings: _Settings = None, metadata: Optional[str] = None) -> str:
    with _parts():
        return _build_wheel(directory, settings, metadata)


def build_editable(directory: str, settings: _Settings = None, metadata: Optional[str] = None) -> str:
    with _parts():
        return _build_editable(directory, settings, metadata)


@contextmanager
def _parts() -> Iterator[None]:
    """Make the auditor and the man page's folder. The folder goes afterwards, because pip may build in a checkout."""
    _compile_auditor()
    target = _DATA / "data" / _MAN
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path("docs", "dmods.1"), target)
    try:
        yield
    finally:
        shutil.rmtree(_DATA)


def _compile_auditor() -> None:
    """Compile the auditor. Without it, only `dmods run` does not work, and says so."""
    try:
        subprocess.run(["sh", "audit/build"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"dmods: the auditor cannot be compiled ({error}): `dmods run` will not work", file=sys.stderr)
        print("dmods: install gcc and the C library's headers, then install dmods again", file=sys.stderr)
