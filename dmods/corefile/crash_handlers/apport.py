"""apport's keeping: a text of "Key: value" for each crash. The core is a value in base64.

A value goes on in lines that begin with a blank. "CoreDump: base64" is followed by lines of base64: the first is the
header of a gzip file, the others are pieces of its deflate stream and its end. Put together they are one gzip file.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator
from typing import BinaryIO, Optional

from dmods.base.regex import regex
from dmods.corefile.crash_handlers import APPORT, REPORT
from dmods.corefile.crash_handlers.common import MOST_TEXT, Context, Stored, decoded, entries, number, place, status_of

KEEPER = APPORT
FOLDER = "/var/crash"
_KEY = regex(rb"[A-Za-z0-9_.-]{1,100}:")
_CORE = "CoreDump"
_BEGIN = _CORE.encode() + b": base64"
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# A key, and its name in a Context.
_KEYS = {
    "ExecutablePath": "exe", "ProcCmdline": "cmdline", "ProcMaps": "maps", "ProcStatus": "status", "ProcCwd": "cwd",
    "Signal": "signal", "Package": "package", "ProcLimits": "limits", "ProcFDs": "open_fds", "ProcCgroup": "cgroup",
    "UserGroups": "groups", "DistroRelease": "system", "Date": "date", "ExecutableTimestamp": "executable_time",
}  # fmt: skip
_STEP = 1 << 20  # bytes of a line that are read at once: a multiple of 4
_MOST_KEYS = 500
_MOST_TEXTS = 64 << 20  # bytes of all texts together
_MOST_LISTED = 8 << 20  # bytes that are read of a report for a list; its texts come first
_PID = regex(r"^Pid:\s*(\d+)$", re.MULTILINE)


def is_report(head: bytes) -> bool:
    """Return whether these are the first bytes of a report."""
    return head.startswith(REPORT)


def fields(path: str, most: Optional[int] = None) -> dict[str, str]:
    """Return the texts of a report by their keys; "base64" for a value in base64. Raises OSError.

    ``most`` bytes are read, or all.
    """
    found: dict[str, bytearray] = {}
    value: Optional[bytearray] = None
    room = _MOST_TEXTS
    with open(path, "rb") as file:
        begins = True
        while most is None or file.tell() < most:
            line = file.readline(_STEP)
            if not line:
                break
            key = _KEY.match(line) if begins else None
            if key is not None and len(found) < _MOST_KEYS:
                value = found.setdefault(line[: key.end() - 1].decode("ascii"), bytearray())
                value += line[key.end() :].strip()
                room -= len(value)
            elif value is not None and value[:6] != b"base64" and len(value) < MOST_TEXT and room > 0:
                room -= len(line)
                value += (b"\n" if value and begins else b"") + line.strip(b"\n")[1 if begins else 0 :]
            begins = line.endswith(b"\n")
    return {key: decoded(bytes(value)) for key, value in found.items()}


def has_core(path: str) -> bool:
    """Return whether a file is a report with a core, not too far behind its beginning. Raises OSError."""
    with open(path, "rb") as file:
        line = file.readline(_STEP)
        if not is_report(line):
            return False
        while line and file.tell() < _MOST_LISTED:
            line = file.readline(_STEP)
            if line.startswith(_BEGIN):
                return True
    return False


def write_core(path: str, to: BinaryIO, most: int) -> Optional[bool]:
    """Write the compressed core of a report: at most so many bytes. Raises OSError.

    Return None where the report has no core, and False where its base64 is damaged or there is more: then what could
    be read is written.
    """
    with open(path, "rb") as file:
        for line in iter(lambda: file.readline(_STEP), b""):
            if line.startswith(_BEGIN):
                break
        else:
            return None
        while most > 0:
            line = file.readline(1)
            if line != b" ":  # the next key, or the end
                return True
            ended = False
            while not ended:
                piece = file.readline(_STEP)
                ended = len(piece) < _STEP or piece.endswith(b"\n")
                try:
                    raw = base64.b64decode(piece.strip(), validate=True)
                except binascii.Error:
                    to.write(_whole_groups(piece.strip()))
                    return False
                to.write(raw[:most])
                most -= len(raw)
    return False


def _whole_groups(text: bytes) -> bytes:
    """Return the bytes of a line that was cut, up to the first character that is not of base64."""
    good = len(text) - len(text.lstrip(_BASE64))
    return base64.b64decode(text[: good // 4 * 4])


def context(path: str) -> Optional[Context]:
    """Return what a report knows of the process, or None where the file is not a report."""
    try:
        with open(path, "rb") as file:
            if not is_report(file.read(len(REPORT))):
                return None
        return _context(fields(path))
    except OSError:
        return None


def stored() -> Iterator[Stored]:
    """Yield the reports with a core that apport keeps."""
    for path in entries(place(FOLDER)):
        status = status_of(path)
        if not path.endswith(".crash") or status is None:
            continue
        try:
            told = fields(path, _MOST_LISTED)
        except OSError:
            told = {}
            yield Stored(KEEPER, path, status.st_mtime, status.st_size, _program(path))
            continue
        if told.get(_CORE, "").startswith("base64"):
            known = _context(told).known
            program, pid, signal = known.get("exe"), number(known.get("pid")), number(known.get("signal"))
            yield Stored(KEEPER, path, status.st_mtime, status.st_size, program, pid, signal)


def _context(told: dict[str, str]) -> Context:
    known = {ours: told[theirs] for theirs, ours in _KEYS.items() if told.get(theirs)}
    pid = _PID.search(known.get("status", ""))
    if pid:
        known["pid"] = pid[1]
    return Context(KEEPER, known)


def _program(path: str) -> str:
    """Return the program that the name of a report has: _usr_bin_x.1000.crash. A "_" may have been a "/"."""
    return os.path.basename(path)[: -len(".crash")].rpartition(".")[0].replace("_", "/")
