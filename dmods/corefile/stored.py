"""The cores that a machine keeps, and names for them: coredump:PID, coredump:NAME, and coredump: for the newest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Optional

from dmods.corefile import notes, packed
from dmods.corefile.crash_handlers import abrt, apport, systemd
from dmods.corefile.crash_handlers.common import Context, Stored, entries, is_whole, number, status_of
from dmods.errors import CorruptError, TruncatedError, UserError
from dmods.modules import elf
from dmods.process import arch

PREFIX = "coredump:"
HERE = "this folder"
_MOST_HERE = 2000  # files of the current folder that are looked at


def stored_cores() -> list[Stored]:
    """Return the cores that systemd, apport and abrt keep, and those of the current folder, newest first."""
    found: dict[str, Stored] = {}
    for each in (*systemd.stored(), *apport.stored(), *abrt.stored(), *_here()):
        found.setdefault(os.path.realpath(each.path), each)  # the current folder may be one of theirs
    return sorted(found.values(), key=lambda each: (-each.time, each.path))


def named(word: str) -> str:
    """Return the path that a word of a command line means: that of a core for coredump:NAME, else the word itself.

    Raises UserError where there is no such core.
    """
    if not word.startswith(PREFIX) or os.path.lexists(word):
        return word
    wanted, found = word[len(PREFIX) :], stored_cores()
    fits = [each for each in found if _fits(each, wanted)]
    if not fits:
        what = f"no core of {wanted}" if wanted else "no core"
        raise UserError(
            f"{word}: systemd, apport, abrt and the current folder have {what}",
            "`dmods cores` lists what they have" if found else "`dmods doctor` says where the kernel writes cores",
        )
    return fits[0].path


def _fits(each: Stored, wanted: str) -> bool:
    if not wanted:
        return True
    if wanted.isdecimal():
        return each.pid == int(wanted)
    program = each.program or ""
    return wanted in (program, os.path.basename(program))


def _here() -> list[Stored]:
    """Return the cores and reports of the current folder: which file is one is told by its content."""
    found = [_core(path) for path in entries(".", _MOST_HERE)]
    return [each for each in found if each is not None]


def _core(path: str) -> Optional[Stored]:
    """Return a core, a report or a problem's folder, or None for any other file."""
    path = os.path.normpath(path)
    status = status_of(path)
    if status is None:
        core = abrt.core_in(path) if not os.path.islink(path) else None
        return _kept(path, core, abrt.context(path)) if core is not None else None
    try:
        with open(path, "rb") as file:
            head = file.read(64)
    except OSError:
        return None
    if apport.is_report(head):
        return _kept(path, path, apport.context(path))
    form = packed.form_of_bytes(head)
    if not packed.is_dump(head if form is None else packed.head_of(path, form, 64)):
        return None
    told = {**(systemd.told_by_name(path) or {}), **systemd.told_by_attributes(path)}
    program, pid, signal = _notes(path, form)
    return Stored(
        HERE,
        path,
        status.st_mtime,
        status.st_size,
        told.get("exe") or told.get("comm") or program,
        number(told.get("pid")) or pid,
        number(told.get("signal")) or signal,
        is_whole(path),
    )


def _kept(path: str, core: str, known: Optional[Context]) -> Optional[Stored]:
    status = status_of(core)
    if known is None or status is None:
        return None
    told = known.known
    numbers = known.number("pid"), known.number("signal")
    return Stored(HERE, path, status.st_mtime, status.st_size, told.get("exe"), *numbers, is_whole(core))


def _notes(path: str, form: Optional[str]) -> tuple[Optional[str], Optional[int], Optional[int]]:
    """Return (program, pid, signal) by the notes at the beginning of a core."""
    try:
        if form is None:
            with open(path, "rb") as file:
                head = file.read(1 << 20)
        else:
            head = packed.head_of(path, form)
        header = elf.parse(lambda offset, size: head[max(0, offset) : max(0, offset) + max(0, size)], path)
        raw = [head[each.offset : each.offset + each.filesz] for each in header.segments if each.type == elf.PT_NOTE]
        machine = arch.arch_of_elf(header.machine, header.word, header.little_endian, path)
        every: Sequence[tuple[bytes, int, bytes]] = [
            note for data in raw for note in elf.read_notes(data, header.little_endian)
        ]
        found = notes.parse(every, machine)
    except (OSError, CorruptError, TruncatedError, UserError, OverflowError):
        return None, None, None
    signal = found.threads[0].signal if found.threads else None
    return found.program, found.pid, signal.number if signal else None
