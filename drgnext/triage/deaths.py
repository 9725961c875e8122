"""The ways in which kernels die, by their messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from dmods.base.regex import regex

# Someone asked for the crash: echo c >/proc/sysrq-trigger, an NMI button, a hypervisor's command.
_ASKED = regex(r"sysrq|SysRq", re.IGNORECASE)
_KINDS = (
    (r"NULL pointer dereference", "null-pointer"),
    (r"use-after-free", "use-after-free"),
    (r"slab-out-of-bounds|stack-out-of-bounds|KASAN", "out-of-bounds"),
    (r"detected buffer overflow|^usercopy: |skb_(over|under)_panic", "out-of-bounds"),
    (r"^list_\w+ corruption", "list-corruption"),
    (r"tried to execute NX-protected page|unable to execute userspace code", "bad-jump"),
    (r"stack guard page|kernel stack overflow|stack overflow", "stack-overflow"),
    (r"stack-protector|stack smashing", "stack-smash"),
    (r"soft lockup", "soft-lockup"),
    (r"hard LOCKUP", "hard-lockup"),
    (r"hung_task|blocked tasks", "hung-task"),
    (r"rcu.*stall", "rcu-stall"),
    (r"[Oo]ut of memory|[Ss]ystem is deadlocked on memory|invoked oom-killer", "out-of-memory"),
    (r"general protection fault|non-canonical", "bad-pointer"),
    (r"unable to handle (kernel )?(page|paging)|Unable to handle kernel", "bad-pointer"),
    (r"divide error", "division-by-zero"),
    (r"kernel BUG at|invalid opcode", "bug"),
    (r"double fault", "double-fault"),
    (r"machine check|Machine Check", "machine-check"),
    (r"Attempted to kill init", "init-died"),
    (r"VFS: Unable to mount root", "no-root"),
    (r"NMI", "nmi"),
)


def kind_of(message: str, details: Sequence[str] = ()) -> str:
    """Return a short name for the death that the message tells of, else the lines behind it (PanicLog.details)."""
    for text in (message, *details):
        for pattern, kind in _KINDS:
            if re.search(pattern, text):
                return kind
    return "panic"


def was_asked(*texts: Optional[str]) -> bool:
    """Return whether one of the messages says that someone asked for the crash."""
    return any(text and _ASKED.search(text) for text in texts)
