"""The facts that a keeper of cores (systemd, apport, abrt) has of a process beside its core, or /proc of a live one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.cached import cached
from dmods.corefile.crash_handlers import abrt, apport, systemd
from dmods.corefile.crash_handlers.common import LIVE, Context
from dmods.corefile.unpacked import source_of
from dmods.process import signals
from dmods.target import Target

_LONGEST = 300  # characters of a text that is shown
# Of the limits that say something about a death.
_LIMITS = {"Max core file size": "core", "Max open files": "open files", "Max address space": "address space",
           "Max stack size": "stack"}  # fmt: skip


@cached
def crash_context(target: Target) -> Optional[Context]:
    """Return what the keeper of the target's core knows, or /proc of a live process; None where nobody does."""
    beside: Optional[Context] = getattr(target, "context", None)  # of a live process
    return context_of(target.path) if target.path is not None else beside


def context_of(path: str) -> Optional[Context]:
    """Return what the keeper of a core knows, or None where nobody keeps it."""
    path = source_of(path)
    for keeper in (abrt, apport, systemd):
        found: Optional[Context] = keeper.context(path)
        if found is not None:
            return found
    return None


def context_lines(found: Context, contents: bool = True) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of what is known, for people. Without ``contents``, no words of the command line."""
    if found.keeper == LIVE:
        yield "told_by", f"{LIVE}/{found.known['pid']}"
    else:
        yield "kept_by", found.keeper
    signal = found.number("signal")
    if signal is not None:
        yield "signal", signals.name(signal)
    for name in ("unit", "user_unit", "slice", "cgroup"):
        if found.known.get(name):
            yield name, _short(found.known[name])
    if found.container:
        yield "container", _short(found.container)
    for name in ("package", "hostname", "cwd", "root", "cmdline") if contents else ("package", "hostname"):
        if found.known.get(name):
            yield name, _short(found.known[name])
    limits = [f"{shown} {limit:,}" for name, shown in _LIMITS.items() if (limit := found.limit(name)) is not None]
    if limits:
        yield "limits", ", ".join(limits)
    files = found.open_files
    if files:
        most = found.limit("Max open files")
        yield "open_files", f"{len(files):,}{f' of {most:,}' if most is not None else ''}, the highest is {max(files)}"
    maps = found.known.get("maps")
    if maps:
        yield "mappings", f"{maps.count(chr(10)) + 1:,} at the crash"
    if found.known.get("unread"):
        yield "not_read", f"{found.known['unread']}: no permission"


def _short(text: str) -> str:
    return text[:_LONGEST] + ("..." if len(text) > _LONGEST else "")
