"""abrt's keeping: a folder for each problem, with the core and a text file for each thing that is known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Optional

from dmods.base.regex import regex
from dmods.corefile.crash_handlers.common import (
    Context,
    Stored,
    entries,
    is_whole,
    number,
    place,
    small_file,
    status_of,
)

KEEPER = "abrt"
FOLDERS = ("/var/spool/abrt", "/var/tmp/abrt")
_CORES = ("coredump", "coredump.zst", "coredump.lz4", "coredump.xz", "coredump.gz", "coredump.bz2")
_PROOF = ("executable", "type", "analyzer", "time")  # items of each problem that is a crash
# An item, and its name in a Context.
_ITEMS = {
    "executable": "exe", "cmdline": "cmdline", "pid": "pid", "uid": "uid", "hostname": "hostname", "time": "time",
    "package": "package", "limits": "limits", "open_fds": "open_fds", "maps": "maps", "cgroup": "cgroup",
    "pwd": "cwd", "rootdir": "root", "container_id": "container", "proc_pid_status": "status",
    "reason": "reason", "signal": "signal", "signal_number": "signal",
}  # fmt: skip
_SIGNAL = regex(r"signal (\d{1,3})\b|\b(SIG[A-Z0-9]{2,8})\b")


def core_in(folder: str) -> Optional[str]:
    """Return the path of the core in a problem's folder, or None where the folder is not one of abrt's."""
    if not any(status_of(os.path.join(folder, name)) for name in _PROOF):
        return None
    paths = (os.path.join(folder, name) for name in _CORES)
    return next((path for path in paths if status_of(path)), None)


def context(path: str) -> Optional[Context]:
    """Return what abrt knows of the process whose core (or problem's folder) this is, or None."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    core = core_in(folder)
    if core is None or (folder != path and os.path.basename(path) not in _CORES):
        return None
    told = {}
    for item, name in _ITEMS.items():
        text = small_file(os.path.join(folder, item))
        if text is not None and text.strip():
            told[name] = text.strip("\n")
    told.setdefault("signal", str(_signal(told.get("reason", "")) or ""))
    return Context(KEEPER, {name: text for name, text in told.items() if text})


def stored() -> Iterator[Stored]:
    """Yield the cores that abrt keeps."""
    for each in FOLDERS:
        for folder in entries(place(each)):
            core = core_in(folder) if not os.path.islink(folder) else None
            status = status_of(core) if core else None
            if core is None or status is None:
                continue
            found = context(folder)
            told = found.known if found else {}
            when = number(told.get("time"))
            yield Stored(
                KEEPER, folder, when if when is not None else status.st_mtime, status.st_size, told.get("exe"),
                number(told.get("pid")), number(told.get("signal")), is_whole(core),
            )  # fmt: skip


def _signal(reason: str) -> Optional[int]:
    """Return the signal that a sentence names: "redis-server killed by SIGSEGV"."""
    from dmods.process.signals import parse_name

    found = _SIGNAL.search(reason)
    if found is None:
        return None
    return number(found[1]) if found[1] else parse_name(found[2])
