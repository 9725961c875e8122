"""Parts that the readers of systemd's, apport's and abrt's keeping share."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex

#: The environment variable that names another root: the disk of another machine, or a test's folder.
ROOT = "DMODS_CORES_ROOT"
#: The keeper of a process that lives.
LIVE = "/proc"
#: The most bytes of a text of a process that are kept: PROC_MAPS of 10,000 mappings.
MOST_TEXT = 1 << 20
_LATEST = 1 << 33  # seconds since 1970: the year 2242
_LIMIT = regex(r"^(Max [a-z ]+?)\s{2,}(\S+)\s+(\S+)", re.MULTILINE)
_OPEN = regex(r"^(\d{1,9}):(?!\t| )(.*)$", re.MULTILINE)
# Names of containers in a control group: docker, podman, containerd, cri-o, Kubernetes, lxc and systemd-nspawn.
_CONTAINER = regex(
    r"(?:docker|libpod|cri-containerd|containerd|crio)[-/:]([0-9a-f]{12,64})|"
    r"kubepods[^\n]*?/([0-9a-f]{64})|lxc(?:\.payload)?[./]([\w.-]{1,64})|/machine-([^/\n]{1,64}?)\.scope"
)


class Stored(NamedTuple):
    """A core in somebody's keeping. What is not known is None; ``whole`` says whether nothing of the core was cut."""

    keeper: str
    path: str
    time: float  # seconds since 1970
    size: int  # bytes on the disk of the file that has the core
    program: Optional[str] = None
    pid: Optional[int] = None
    signal: Optional[int] = None
    whole: Optional[bool] = None


class Context(NamedTuple):
    """The facts that a keeper has of the process, by name: pid, signal, unit, cgroup, limits, open_fds, cmdline, ..."""

    keeper: str
    known: Mapping[str, str]

    def number(self, name: str) -> Optional[int]:
        """Return a number that the keeper knows, or None."""
        return number(self.known.get(name))

    def limit(self, name: str) -> Optional[int]:
        """Return the soft limit of that name ("Max open files"), or None for one that is unlimited or not known."""
        for found in _LIMIT.finditer(self.known.get("limits", "")):
            if found[1] == name:
                return number(found[2])
        return None

    @property
    def time(self) -> Optional[float]:
        """Return when the process died, in seconds since 1970, or None."""
        micros = self.number("timestamp")
        seconds = micros / 1e6 if micros is not None else self.number("time")
        return float(seconds) if seconds is not None and 0 < seconds < _LATEST else None

    @property
    def open_files(self) -> Mapping[int, str]:
        """Return the open files: what each descriptor is."""
        return {int(found[1]): found[2] for found in _OPEN.finditer(self.known.get("open_fds", ""))}

    @property
    def container(self) -> Optional[str]:
        """Return the container's name: what the keeper says, or an id in the control group."""
        told = self.known.get("container")
        if told:
            return told
        return container_in(self.known.get("cgroup", ""))


def container_in(groups: str) -> Optional[str]:
    """Return the name of the container that a control group has, or None."""
    found = _CONTAINER.search(groups)
    return next((each for each in found.groups() if each), None) if found else None


def number(text: Optional[str]) -> Optional[int]:
    """Return the decimal number that a text is, or None."""
    return int(text) if text is not None and len(text) < 20 and text.isascii() and text.isdigit() else None


def decoded(raw: bytes) -> str:
    """Return text that somebody else wrote. Bytes that are not UTF-8 become escapes; the end of a long one is cut."""
    return raw[:MOST_TEXT].decode("utf-8", "backslashreplace")


def place(path: str) -> str:
    """Return an absolute path below the root that the user named, or the path itself."""
    root = os.environ.get(ROOT)
    return os.path.join(root, path.lstrip("/")) if root else path


def small_file(path: str, most: int = MOST_TEXT) -> Optional[str]:
    """Return the text of a small regular file, or None. No link is followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return decoded(os.read(descriptor, most)) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def entries(folder: str, most: int = 10_000) -> list[str]:
    """Return the first paths in a folder, or [] where it does not exist or cannot be read."""
    try:
        with os.scandir(folder) as found:
            return [entry.path for _count, entry in zip(range(most), found)]
    except OSError:
        return []


def status_of(path: str) -> Optional[os.stat_result]:
    """Return the status of a regular file, or None. No link is followed."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def is_whole(path: str) -> Optional[bool]:
    """Return whether a core has all that its headers promise. None: it is compressed, not readable, or no core."""
    from dmods.corefile import packed

    try:
        with open(path, "rb") as file:
            head = file.read(1 << 20)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return None
    if packed.form_of_bytes(head) is not None or not packed.is_dump(head):
        return None
    promised = packed.promised_size(head)
    return None if promised is None else promised <= size
