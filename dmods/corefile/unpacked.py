"""Plain copies of compressed dumps, kept in the user's cache folder for the next command.

A core holds secrets: the folder and the copies are for their owner alone, and no link of somebody else is followed. The
engine maps a file, and gdb and drgn open one, so a compressed dump has to become a file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, Optional

from dmods.base import raw_names
from dmods.base.named_tuple import NamedTuple
from dmods.base.progress import Progress
from dmods.base.sizes import human_size
from dmods.corefile import archives, packed
from dmods.corefile.crash_handlers import APPORT, REPORT
from dmods.errors import UserError

#: The environment variable with the most bytes that a dump may have when it is unpacked.
MOST_SIZE = "DMODS_MAX_SIZE"
_LEAST_LIMIT, _RATIO = 16 << 30, 1000  # without it: so many bytes, or so many for each packed one
_MOST_KEPT = 64 << 30  # bytes on the disk of all copies: the one that was not used for longest goes first
_LEFT_FREE = 512 << 20
_PART = ".part"
_MINIDUMP = "minidump"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Copy(NamedTuple):
    """A copy in the folder: its path, the dump that it was made of, its bytes on the disk, and its last use."""

    path: str
    source: str
    stored: int
    used: float


def plain_path(path: str) -> tuple[str, list[str]]:
    """Return the path of the dump as a plain file, and notes about it: the path itself where it is not compressed.

    Raises UserError where what is in the file is no dump, or where there is no place for it.
    """
    if os.path.isdir(path):
        from dmods.corefile.crash_handlers.abrt import core_in

        path = core_in(path) or path
    try:
        # The wrong kind of file (a pipe) would wait for a writer. Whoever opens it says what is wrong.
        form = _other_form(path) if stat.S_ISREG(os.stat(path).st_mode) else None
    except (OSError, ValueError):
        return path, []
    if form is None:
        return path, []
    import hashlib  # it brings OpenSSL: 3 ms

    status = os.stat(path)
    folder = own_folder()
    known = f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {form}"
    copy = os.path.join(folder, hashlib.sha256(raw_names.key(known)).hexdigest()[:24] + ".core")
    told = _told(copy)
    notes = []
    if told is None:
        told = _make(path, form, status, copy)
        notes.append(
            f"{path} {_is_what(form)}: its plain copy is {copy} ({human_size(_stored(copy))} on disk); "
            "`dmods cache --clear` removes it"
        )
        _remove_oldest(folder, copy)
    else:
        os.utime(about(copy))
    more = told.get("notes")
    notes += [str(each) for each in more] if isinstance(more, list) else []
    damage = told.get("damage")
    if damage:
        size = os.stat(copy).st_size
        notes.append(f"{path} is cut or damaged: {size} bytes could be unpacked ({damage})")
    if form != _MINIDUMP and _other_form(copy) == _MINIDUMP:
        core, more = plain_path(copy)
        return core, notes + more
    return copy, notes


def form_of(path: str) -> Optional[str]:
    """Return the compression of a dump, "apport" for a report, or None for a plain file. Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(16)
    return APPORT if head.startswith(REPORT) else packed.form_of_bytes(head)


def _other_form(path: str) -> Optional[str]:
    """Return the form of a file that a plain core is made of: as form_of(), or "minidump". Raises OSError."""
    with open(path, "rb") as file:
        if file.read(len(packed.MINIDUMP)) == packed.MINIDUMP:
            return _MINIDUMP
    return form_of(path)


def _is_what(form: str) -> str:
    if form == _MINIDUMP:
        return "is a minidump"
    return "is a report of apport" if form == APPORT else f"is compressed ({form})"


def room() -> int:
    """Return how many bytes may be written into the folder."""
    free = os.statvfs(own_folder())
    return max(0, free.f_bavail * free.f_frsize - _LEFT_FREE)


def unnamed_file(size: int, what: str) -> int:
    """Return the descriptor of a new file in the folder, for the user alone, that is gone once it is closed.

    Raises UserError where there is no room for ``size`` bytes, which ``what`` has.
    """
    copy = os.path.join(own_folder(), "live.core")
    free = room()
    if size > free:
        raise UserError(
            f"there is no room for the {human_size(size)} of {what}: {human_size(free)} are free "
            f"in {os.path.dirname(copy)}",
            _elsewhere(copy),
        )
    with new_file(copy) as part:
        return os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)


def source_of(path: str) -> str:
    """Return the dump that the plain file was made of, or the path itself where it is no copy."""
    if not path.endswith(".core") or not os.path.lexists(about(path)):
        return path
    source = (_told(path) or {}).get("source")
    return source if isinstance(source, str) else path


def copies() -> list[Copy]:
    """Return the copies that are kept, the one that was used last first. Raises UserError for a folder of others."""
    if not os.path.lexists(_folder()):
        return []
    found = []
    for entry in os.scandir(own_folder()):
        told = _told(entry.path) if entry.name.endswith(".core") else None
        if told is not None:
            used = os.stat(about(entry.path)).st_mtime
            found.append(Copy(entry.path, str(told.get("source")), _stored(entry.path), used))
    return sorted(found, key=lambda each: -each.used)


def clear() -> tuple[int, int]:
    """Remove all copies, and what ended runs left. Return (how many there were, their bytes on the disk)."""
    if not os.path.lexists(_folder()):
        return 0, 0
    count = size = 0
    for entry in list(os.scandir(own_folder())):
        if entry.name.endswith(_PART) and _is_being_made(entry.name):
            continue
        stored = _stored(entry.path)
        os.unlink(entry.path)
        if entry.name.endswith((".core", _PART)):
            count, size = count + 1, size + stored
    return count, size


def folder_of_copies(kind: str = "cores") -> str:
    """Return the path of the folder, which may not exist yet."""
    return _folder(kind)


def size_of(text: str) -> int:
    """Return the number of bytes that a text such as "64G" or "1000" means. Raises UserError."""
    number, unit = text[:-1], text[-1:].upper()
    if unit.isdigit() or unit not in _UNITS:
        number, unit = text, ""
    if not number.isdecimal() or len(number) > 18:
        raise UserError(f"{text} is not a size", "give a number of bytes, or one with K, M, G or T: 200G")
    return int(number) * _UNITS[unit]


# -- the folder -------------------------------------------------------------------------------------------------------


def _folder(kind: str = "cores") -> str:
    base = os.environ.get("XDG_CACHE_HOME", "")
    # A relative path is to be ignored (XDG Base Directory Specification).
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "dmods", kind)


def own_folder(kind: str = "cores") -> str:
    """Return the folder, which is made if it does not exist. Raises UserError where it belongs to somebody else."""
    folder = _folder(kind)
    try:
        os.makedirs(os.path.dirname(os.path.dirname(folder)), exist_ok=True)
        for each in (os.path.dirname(folder), folder):
            if not os.path.lexists(each):
                os.mkdir(each, 0o700)
            status = os.lstat(each)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise UserError(
                    f"{each} is not a folder of yours, so no dump can be unpacked into it",
                    "remove it, or name another folder: XDG_CACHE_HOME=DIR",
                )
            if status.st_mode & 0o077:
                os.chmod(each, 0o700)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made, and a compressed dump is unpacked there: {error.strerror}",
            "name another folder: XDG_CACHE_HOME=DIR",
        ) from None
    return folder


def about(copy: str) -> str:
    """Return the path of the file that says what a copy was made of."""
    return copy + ".json"


def _told(copy: str) -> Optional[dict[str, object]]:
    """Return what is known of a copy; None where it is not there, or is not whole."""
    try:
        if not stat.S_ISREG(os.lstat(copy).st_mode):
            return None
        with open(about(copy), "rb") as file:
            import json  # also below: few dumps are compressed

            told: object = json.load(file)
        if isinstance(told, dict) and told.get("size") == os.stat(copy).st_size:
            return told
    except (OSError, ValueError):
        pass
    return None


def _stored(path: str) -> int:
    return os.lstat(path).st_blocks * 512


def _is_being_made(name: str) -> bool:
    """Return whether the process in the name of an unfinished copy still runs."""
    return os.path.exists(f"/proc/{name[: -len(_PART)].rpartition('.')[2]}")


def _remove_oldest(folder: str, but: str) -> None:
    """Remove unfinished copies that nobody makes any more, and the oldest copies beyond the limit."""
    for entry in list(os.scandir(folder)):
        if entry.name.endswith(_PART) and not _is_being_made(entry.name):
            os.unlink(entry.path)
    room = _MOST_KEPT
    for each in copies():
        room -= each.stored
        if room < 0 and each.path != but:
            os.unlink(each.path)
            os.unlink(about(each.path))


# -- making a copy ----------------------------------------------------------------------------------------------------


class _Packed(NamedTuple):
    """A compressed file, its form, the dump that the user gave (it, or a report that it is in), and its damage."""

    path: str
    form: str
    source: str
    damage: Optional[str] = None


def _make(path: str, form: str, status: os.stat_result, copy: str) -> dict[str, object]:
    if form == _MINIDUMP:
        return _make_of_minidump(path, status, copy)
    if form != APPORT:
        return _make_of(_Packed(path, form, path), status, copy)
    with new_file(copy + ".packed") as inner:
        intact = _write_payload(path, inner)
        known = packed.form_of(inner)
        if known is None:
            raise UserError(f"{path} has a core that cannot be unpacked", "copy or take the report again, whole")
        return _make_of(_Packed(inner, known, path, None if intact else "its base64 is damaged"), status, copy)


def _write_payload(path: str, to: str) -> bool:
    """Write the compressed core of a report into an empty file. Return whether it is there to its end."""
    from dmods.corefile.crash_handlers.apport import write_core

    free = os.statvfs(os.path.dirname(to))
    with open(to, "wb") as file:
        try:
            ended = write_core(path, file, max(0, free.f_bavail * free.f_frsize - _LEFT_FREE))
        except OSError as error:
            raise UserError(f"cannot unpack {path}: {error.strerror}", _elsewhere(to)) from None
    if ended is None:
        raise UserError(f"{path} is a report of apport without a core", "a report that was sent may have lost it")
    return ended


def _make_of_minidump(path: str, status: os.stat_result, copy: str) -> dict[str, object]:
    from dmods.corefile.minidumps.convert import convert  # few dumps are minidumps

    with new_file(copy) as part, Progress(f"reading {os.path.basename(path)}") as bar:
        try:
            made = convert(path, part, room(), lambda done: bar.update(done, status.st_size))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}", _elsewhere(copy)) from None
        told: dict[str, object] = {"source": os.path.abspath(path), "size": made.size, "notes": made.notes}
        _keep(part, copy, status, told)
    return told


def _keep(part: str, copy: str, status: os.stat_result, told: dict[str, object]) -> None:
    """Give a copy its name, and write down what it was made of."""
    import json

    # Programs and libraries that are newer than a core are told by its time.
    os.utime(part, ns=(status.st_mtime_ns, status.st_mtime_ns))
    with new_file(about(copy)) as beside:
        with open(beside, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(told, file)
        os.rename(part, copy)
        os.rename(beside, about(copy))


def _make_of(what: _Packed, status: os.stat_result, copy: str) -> dict[str, object]:
    size = os.stat(what.path).st_size
    limits = _limits(what, size, os.path.dirname(copy))
    with new_file(copy) as part, Progress(f"unpacking {os.path.basename(what.source)}") as bar:
        try:
            made = packed.unpack(what.path, what.form, part, limits, lambda done: bar.update(done, size))
        except OSError as error:
            raise UserError(f"cannot unpack {what.source}: {error.strerror}", _elsewhere(copy)) from None
        if made.full and made.stored >= limits.room:
            _refuse_room(what.source, limits.room, copy)
        if made.full and made.size >= most_size(size):
            _refuse_size(what.source, made.size, "more than ")
        damage = what.damage or made.damage
        told: dict[str, object] = {"source": os.path.abspath(what.source), "size": made.size, "damage": damage}
        _keep(part, copy, status, told)
    return told


@contextmanager
def new_file(final: str) -> Iterator[str]:
    """Make an empty file beside its final place, for the user alone, and yield its path. What is left is removed."""
    part = f"{final}.{os.getpid()}{_PART}"
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise UserError(f"{part} cannot be made: {error.strerror}", _elsewhere(final)) from None
    try:
        yield part
    finally:
        if os.path.lexists(part):
            os.unlink(part)


def _limits(what: _Packed, size: int, folder: str) -> packed.Limits:
    """Return how much may be unpacked. Raises UserError where it is clear that this is not enough, or is no dump."""
    head = packed.head_of(what.path, what.form)
    if not packed.is_dump(head):
        problem = archives.of_file(what.source, head, what.form)
        if problem is not None:
            raise UserError(*problem)
        found = "is no dump" if head else "cannot be unpacked"
        raise UserError(
            f"{what.source} is compressed ({what.form}), and what is in it {found}",
            f"`{what.form} -dc` shows what is in it" if head else "copy or take it again, whole",
        )
    most, promised = most_size(size), packed.promised_size(head)
    if promised is not None and promised > most:
        _refuse_size(what.source, most, human_size(promised) + ", and the limit is ")
    free = os.statvfs(folder)
    room = max(0, free.f_bavail * free.f_frsize - _LEFT_FREE)
    # Of what follows the end that the headers tell, no more is unpacked than belongs to a core.
    return packed.Limits(most if promised is None else min(most, promised + packed.BEHIND), room)


def most_size(packed_size: int) -> int:
    """Return how many bytes may be unpacked of so many packed ones."""
    given = os.environ.get(MOST_SIZE)
    return size_of(given) if given else max(_LEAST_LIMIT, _RATIO * packed_size)


def _refuse_room(path: str, room: int, copy: str) -> NoReturn:
    free = f"{human_size(room)} are free for it in {os.path.dirname(copy)}"
    raise UserError(f"there is no room to unpack {path}: {free}", _elsewhere(copy))


def _refuse_size(path: str, most: int, has: str) -> NoReturn:
    raise UserError(
        f"{path} is too large to be unpacked: it has {has}{human_size(most)}",
        f"if that can be right, give a higher limit: {MOST_SIZE}=200G",
    )


def elsewhere() -> str:
    """Return what helps where there is no room."""
    return _elsewhere(os.path.join(_folder(), ""))


def _elsewhere(copy: str) -> str:
    return f"`dmods cache --clear` empties {os.path.dirname(copy)}; XDG_CACHE_HOME=DIR names another folder"
