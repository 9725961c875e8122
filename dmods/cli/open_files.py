"""Files that a debugger has open under names which its Python cannot say: their bytes are not UTF-8."""

from __future__ import annotations

import os
from typing import Optional

from dmods.base.raw_names import shown
from dmods.cli.gdb_arguments import elf_type

_FOLDER = "/proc/self/fd"


def open_with_raw_name(*types: int) -> Optional[str]:
    """Return the path of the ELF file of one of the types (e_type) that is open here under such a name.

    None where no such file is open, or several are.
    """
    found = {path for path in _open_paths() if path != shown(path) and elf_type(path) in types}
    return found.pop() if len(found) == 1 else None


def _open_paths() -> list[str]:
    paths = []
    for name in os.listdir(_FOLDER):
        try:
            paths.append(os.readlink(f"{_FOLDER}/{name}"))
        except OSError:  # the descriptor of the folder itself
            continue
    return [path for path in paths if os.path.isfile(path)]


def sayable(path: str) -> str:
    """Return the path; or, where its bytes are not UTF-8, a path to a descriptor of the file that stays open."""
    if path == shown(path):
        return path
    return f"/proc/{os.getpid()}/fd/{os.open(path, os.O_RDONLY | os.O_CLOEXEC)}"
