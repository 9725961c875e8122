"""Reads what /proc says of a live process: proc(5). Of one that died, systemd, apport and abrt say it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Callable

from dmods.corefile.crash_handlers.common import LIVE, Context, container_in, decoded
from dmods.corefile.live.process import folder_of

_MOST_NAMED = 1 << 14  # open files whose names are read
_MOST_WORDS = 1 << 16  # bytes of the command line
_UNITS = (".service", ".scope", ".socket", ".mount", ".swap")
_USERS = "user@"


def live_context(pid: int, proc: str = "/proc") -> Context:
    """Return the limits, open files, control group, unit, container and command line of a process.

    ``unread`` names what may not be read.
    """
    known, unread = {"pid": str(pid)}, []
    folder = folder_of(pid, proc)
    for name, shown, read in (
        ("limits", "limits", _limits), ("open_fds", "open files", _open_files), ("cgroup", "cgroup", _groups),
        ("cmdline", "command line", _command_line), ("cwd", "current folder", _link("cwd")),
        ("root", "root", _link("root")), ("exe", "program", _link("exe")),
    ):  # fmt: skip
        try:
            known[name] = read(folder)
        except PermissionError:
            unread.append(shown)
        except OSError:  # it has ended, or has no program
            continue
    known.update(_units(known.get("cgroup", "")))
    known["unread"] = ", ".join(unread)
    return Context(LIVE, {name: text for name, text in known.items() if text})


def _bytes(path: str, most: int = 1 << 20) -> bytes:
    with open(path, "rb") as file:
        return file.read(most)


def _limits(folder: str) -> str:
    return decoded(_bytes(f"{folder}/limits"))


def _open_files(folder: str) -> str:
    """Return a line "NUMBER:NAME" for each open file."""
    numbers = sorted(int(name) for name in os.listdir(f"{folder}/fd") if name.isdecimal())
    return "\n".join(
        f"{number}:{_name(f'{folder}/fd/{number}') if count < _MOST_NAMED else ''}"
        for count, number in enumerate(numbers)
    )


def _name(path: str) -> str:
    try:
        return _one_line(os.readlink(path))
    except OSError:  # it was closed meanwhile
        return ""


def _link(name: str) -> Callable[[str], str]:
    return lambda folder: _one_line(os.readlink(f"{folder}/{name}"))


def _one_line(text: str) -> str:
    return decoded(os.fsencode(text)).replace("\n", "\\n")


def _command_line(folder: str) -> str:
    words = _bytes(f"{folder}/cmdline", _MOST_WORDS).rstrip(b"\0")
    return shlex.join(decoded(word) for word in words.split(b"\0")) if words else ""


def _groups(folder: str) -> str:
    return decoded(_bytes(f"{folder}/cgroup"))


def _units(text: str) -> dict[str, str]:
    """Return the group, its unit and its container by the lines of /proc/PID/cgroup: cgroups(7).

    The group is that of the second version, or else that of systemd, or else of memory, that is not the root.
    """
    lines = [line.split(":", 2) for line in text.splitlines()]
    paths = {names: path for _number, names, path in (line for line in lines if len(line) == 3)}
    chosen = [paths.get(names, "") for names in ("", "name=systemd", "memory")]
    group = next((path for path in chosen if path not in ("", "/")), next(filter(None, chosen), ""))
    return {"cgroup": group, "container": container_in(text) or "", **dict(_names(group))}


def _names(group: str) -> Iterator[tuple[str, str]]:
    """Yield the slice and the unit that a path of groups names, and the user's unit below user@UID.service.

    Below a unit the program may have groups of its own.
    """
    kind, slice_ = "unit", ""
    for part in group.split("/"):
        if part.endswith(".slice") and kind == "unit":
            slice_ = part
        elif part.endswith(_UNITS):
            yield kind, part
            if kind == "user_unit" or not part.startswith(_USERS):
                break
            kind = "user_unit"
    yield "slice", slice_
