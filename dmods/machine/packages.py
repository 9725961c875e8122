"""The package that a program came from: what the program says itself, or what dpkg knows of the file.

Distributions write the package into a note of the file (systemd's "Package Metadata for Executable Files": owner FDO,
type 0xcafe1a7e, a JSON object). Debian does not; its dpkg has a list of the files of each package.
"""

from __future__ import annotations

import json
import os
from typing import Optional

from dmods._engine import elf_section
from dmods.modules.elf import read_notes

_OWNER, _TYPE = b"FDO", 0xCAFE1A7E
_DPKG = "/var/lib/dpkg"
_MOST_LIST = 16 << 20  # bytes of one list
_LONGEST = 128  # characters of a name or a version


def package_of(path: str) -> Optional[str]:
    """Return the package of a file on this machine and its version, "redis-server 5:7.0.15-1", or None."""
    return _by_note(path) or _by_dpkg(path)


def _by_note(path: str) -> Optional[str]:
    for owner, kind, desc in read_notes(elf_section(path, ".note.package") or b"", True):
        if owner == _OWNER and kind == _TYPE:
            try:
                told = json.loads(desc.rstrip(b"\0"))
            except ValueError:
                return None
            if isinstance(told, dict) and isinstance(told.get("name"), str):
                return " ".join(str(told[key])[:_LONGEST] for key in ("name", "version") if told.get(key))
    return None


def _by_dpkg(path: str, root: str = _DPKG) -> Optional[str]:
    name = _owner(path, root)
    return f"{name} {_version(name, root)}".strip() if name is not None else None


def _owner(path: str, root: str) -> Optional[str]:
    """Return the name of the package whose list has the file. Where / was merged with /usr, a list may lack "/usr"."""
    names = {path, os.path.realpath(path)}
    names |= {each[4:] for each in names if each.startswith("/usr/")}
    wanted = [f"\n{each}\n".encode("utf-8", "surrogateescape") for each in names]
    folder = os.path.join(root, "info")
    try:
        lists = sorted(each for each in os.listdir(folder) if each.endswith(".list"))
        for each in lists:
            with open(os.path.join(folder, each), "rb") as file:
                text = file.read(_MOST_LIST)
            if any(line in text for line in wanted):
                return each[: -len(".list")].partition(":")[0]
    except OSError:
        pass
    return None


def _version(name: str, root: str) -> str:
    try:
        with open(os.path.join(root, "status"), encoding="utf-8", errors="replace") as file:
            for paragraph in file.read().split("\n\n"):
                if paragraph.startswith(f"Package: {name}\n"):
                    found = [line for line in paragraph.splitlines() if line.startswith("Version: ")]
                    return found[0][len("Version: ") :][:_LONGEST] if found else ""
    except OSError:
        pass
    return ""
