"""Paths below another root than this machine's: a container's, or the folder with another machine's files."""

from __future__ import annotations

import os
from typing import Callable, Optional

_MOST_LINKS = 40  # that are followed for one path, as in the kernel (MAXSYMLINKS)
_MOST_PARTS = 4096

#: Returns where the symbolic link at an absolute path in the root leads, or None where no link is there.
Link = Callable[[str], Optional[str]]


def resolved(path: str, link: Link) -> Optional[str]:
    """Return the absolute path in the root, without links and `..`; None where the links form a cycle.

    Absolute links and `..` stay in the root, as after chroot(2).
    """
    done: list[str] = []
    left = path.split("/")[::-1]
    followed = 0
    while left:
        part = left.pop()
        if part == "..":
            del done[-1:]
        if part in ("", ".", ".."):
            continue
        target = link("/" + "/".join([*done, part]))
        if target is None:
            done.append(part)
            continue
        followed += 1
        if followed > _MOST_LINKS or len(left) > _MOST_PARTS:
            return None
        if target.startswith("/"):
            done.clear()
        left.extend(target.split("/")[::-1])
    return "/" + "/".join(done)


def below(root: str, path: str) -> Optional[str]:
    """Return where a path of the root is on this machine, or None where its links form a cycle."""

    def link(inside: str) -> Optional[str]:
        try:
            return os.readlink(root + inside)
        except (OSError, ValueError):
            return None

    root = root.rstrip("/")
    found = resolved(path, link)
    return None if found is None else root + found
