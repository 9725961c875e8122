"""Tells how much memory a picture may take: no process may be killed because of one."""

from __future__ import annotations

import os
import re
from typing import Optional

from dmods.corefile.live.process import read_text

_LEFT = 256 << 20  # bytes that stay free


def free_memory(root: str = "/") -> Optional[int]:
    """Return the bytes that can be taken: of the machine, and of the control groups of this process. None: unknown."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", read_text(os.path.join(root, "proc/meminfo")), re.MULTILINE)
    free = [int(found[1]) * 1024] if found else []
    for line in read_text(os.path.join(root, "proc/self/cgroup")).splitlines():
        _number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            free += _groups(os.path.join(root, "sys/fs/cgroup"), path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes"
            free += _groups(os.path.join(root, "sys/fs/cgroup/memory"), path, *names)
    return max(0, min(free) - _LEFT) if free else None


def _groups(mount: str, path: str, limit: str, usage: str) -> list[int]:
    """Return what each group, from the process's own to the root, has left. The cache of files can be given up."""
    free = []
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts), -1, -1):
        folder = os.path.join(mount, *parts[:count])
        most, used = (read_text(os.path.join(folder, name)).strip() for name in (limit, usage))
        if most.isdecimal() and used.isdecimal():
            stat = dict(re.findall(r"^(\w+) (\d+)$", read_text(os.path.join(folder, "memory.stat")), re.MULTILINE))
            cache = int(stat.get("inactive_file", "0"))
            free.append(int(most) - int(used) + cache)
    return free
