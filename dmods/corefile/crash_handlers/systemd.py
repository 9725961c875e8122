"""systemd-coredump's keeping: files with attributes, and the journal beside them (systemd-coredump(8)).

The name of a file is core.COMM.UID.BOOTID.PID.TIMESTAMP, with bytes of COMM escaped as \\xNN, and perhaps ".zst".
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Optional

from dmods.base.regex import regex
from dmods.corefile.crash_handlers.common import (
    MOST_TEXT,
    ROOT,
    Context,
    Stored,
    decoded,
    entries,
    is_whole,
    number,
    place,
    status_of,
)

KEEPER = "systemd-coredump"
FOLDER = "/var/lib/systemd/coredump"
_NAME = regex(
    r"core\.(?P<comm>[^./]+)\.(?P<uid>\d{1,10})\.(?P<boot>[0-9a-f]{32})\.(?P<pid>\d{1,10})\.(?P<timestamp>\d{1,20})"
    r"(?:\.(?:zst|lz4|xz))?"
)
_ESCAPE = regex(rb"\\x([0-9a-fA-F]{2})")
_PREFIX = "user.coredump."
_ATTRIBUTES = ("pid", "uid", "gid", "signal", "timestamp", "rlimit", "hostname", "comm", "exe")
_MESSAGE = "fc2e22bc6ee647b6b90729ab34a250b1"  # SD_MESSAGE_COREDUMP (systemd, sd-messages.h)
# A field of the journal, without COREDUMP_, and its name in a Context.
_FIELDS = {
    "PID": "pid", "UID": "uid", "GID": "gid", "SIGNAL": "signal", "TIMESTAMP": "timestamp", "RLIMIT": "rlimit",
    "HOSTNAME": "hostname", "COMM": "comm", "EXE": "exe", "CMDLINE": "cmdline", "UNIT": "unit",
    "USER_UNIT": "user_unit", "SLICE": "slice", "CGROUP": "cgroup", "CONTAINER_CMDLINE": "container",
    "OPEN_FDS": "open_fds", "PROC_LIMITS": "limits", "PROC_MAPS": "maps", "PROC_STATUS": "status", "CWD": "cwd",
    "ROOT": "root", "PACKAGE_NAME": "package", "PACKAGE_VERSION": "package_version", "TRUNCATED": "truncated",
}  # fmt: skip
_MOST_JOURNAL = 64 << 20  # bytes of journalctl's answer that are read
_MOST_ENTRIES = 1000
_PATIENCE = 20.0  # seconds


def unescaped(text: str) -> str:
    """Return a name with its escapes \\xNN decoded."""
    raw = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text.encode("utf-8", "surrogateescape"))
    return decoded(raw)


def told_by_name(path: str) -> Optional[dict[str, str]]:
    """Return what the name of a file says (comm, uid, boot, pid, timestamp), or None where it is not systemd's."""
    found = _NAME.fullmatch(os.path.basename(path))
    return {**found.groupdict(), "comm": unescaped(found["comm"])} if found else None


def told_by_attributes(path: str) -> dict[str, str]:
    """Return what the extended attributes of a file say: nothing where it was copied without them."""
    told = {}
    for name in _ATTRIBUTES if hasattr(os, "getxattr") else ():
        try:
            told[name] = decoded(os.getxattr(path, _PREFIX + name))
        except (OSError, ValueError):
            continue
    return told


def context(path: str) -> Optional[Context]:
    """Return what systemd knows of the process: by the name, the attributes, and the journal if it is readable."""
    told = {**(told_by_name(path) or {}), **told_by_attributes(path)}
    if not told:
        return None
    journal = next(iter(_journal(_match(path, told), 1)), {})
    told = {**told, **{ours: journal[theirs] for theirs, ours in _FIELDS.items() if journal.get(theirs)}}
    if told.get("package") and told.get("package_version"):
        told["package"] += " " + told.pop("package_version")
    return Context(KEEPER, told)


def stored() -> Iterator[Stored]:
    """Yield the cores that systemd-coredump keeps."""
    paths = [path for path in entries(place(FOLDER)) if told_by_name(path)]
    if not paths:
        return
    journal = {each.get("FILENAME", ""): each for each in _journal([], _MOST_ENTRIES)}
    for path in paths:
        status = status_of(path)
        if status is None:
            continue
        beside = journal.get(path, {})
        told = {**(told_by_name(path) or {}), **told_by_attributes(path)}
        micros = number(told.get("timestamp"))
        cut = beside.get("TRUNCATED") == "1"
        yield Stored(
            KEEPER, path, micros / 1e6 if micros else status.st_mtime, status.st_size,
            told.get("exe") or told.get("comm"), number(told.get("pid")),
            number(told.get("signal") or beside.get("SIGNAL")),
            False if cut else True if beside else is_whole(path),
        )  # fmt: skip


def _match(path: str, told: Mapping[str, str]) -> list[str]:
    """Return journalctl's words for the entry about this core. A file that was moved is told by pid and time."""
    if told.get("pid") and told.get("timestamp"):
        return [f"COREDUMP_PID={told['pid']}", f"COREDUMP_TIMESTAMP={told['timestamp']}"]
    return [f"COREDUMP_FILENAME={os.path.abspath(path)}"]


def _journal(match: list[str], most: int) -> Iterator[dict[str, str]]:
    """Yield the fields COREDUMP_... of entries, newest first. Nothing where the journal cannot be read."""
    program = shutil.which("journalctl")
    if program is None:
        return
    words = [program, "--quiet", "--no-pager", "--reverse", "-o", "json", f"--lines={most}"]
    if os.environ.get(ROOT):
        words.append("--directory=" + place("/var/log/journal"))
    # A field above 4096 bytes is only there with --all (journalctl(1)); a list of all cores needs no long fields.
    short = ("FILENAME", "TRUNCATED", "SIGNAL", "PID", "TIMESTAMP")
    words.append("--all" if match else "--output-fields=" + ",".join(f"COREDUMP_{name}" for name in short))
    for line in _lines([*words, f"MESSAGE_ID={_MESSAGE}", *match]):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield {name[9:]: _text(value) for name, value in entry.items() if name.startswith("COREDUMP_")}


def _lines(words: list[str]) -> list[bytes]:
    """Return the lines that a program prints, as far as it does so within the bounds."""
    import subprocess  # gdb's start would wait for it

    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, close_fds=True
        )
    except OSError:
        return []
    said, end = bytearray(), time.monotonic() + _PATIENCE
    assert process.stdout is not None
    with process.stdout as out:
        os.set_blocking(out.fileno(), False)
        while len(said) < _MOST_JOURNAL and (left := end - time.monotonic()) > 0:
            if not _readable(out.fileno(), left):
                break
            part = os.read(out.fileno(), 1 << 16)
            if not part:
                break
            said += part
    process.kill()
    process.wait()
    return bytes(said).split(b"\n")


def _readable(descriptor: int, seconds: float) -> bool:
    import select

    return bool(select.select([descriptor], [], [], seconds)[0])


def _text(value: object) -> str:
    """Return a field of the journal's JSON as text: a text, the bytes of one, or the first of several texts."""
    if isinstance(value, list) and value and isinstance(value[0], (str, list)):
        value = value[0]
    if isinstance(value, list) and all(isinstance(each, int) and 0 <= each < 256 for each in value):
        return decoded(bytes(value))
    return value[:MOST_TEXT] if isinstance(value, str) else ""
