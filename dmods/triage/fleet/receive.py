"""A dump from standard input, as the kernel hands it to the program of core_pattern: kept in a folder, sparsely."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from typing import BinaryIO, Optional

from dmods.errors import UserError
from dmods.triage.fleet.content import SIDE
from dmods.triage.fleet.packed import write_sparse

LIMIT = 8 << 30  # bytes of a dump that are kept
SECONDS = 600.0  # for the whole dump to arrive
_CHUNK = 1 << 20


def become_user(name: str) -> None:
    """Give up root's rights for ever: become the user, with its group alone. Does nothing for anybody but root.

    Raises UserError where there is no such user.
    """
    if os.geteuid() != 0:
        return
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UserError(f"there is no user {name}", "--user NAME: who shall read the dump") from None
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)


def prepare(folder: str, user: str) -> None:
    """Make the folder if it does not exist. Where root does it, it belongs to the user, and to nobody else."""
    try:
        os.makedirs(folder, mode=0o700)
    except FileExistsError:
        return
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}", "--spool DIR: where dumps are kept") from None
    if os.geteuid() == 0:
        import pwd

        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            return  # become_user() says so
        os.chown(folder, entry.pw_uid, entry.pw_gid)


def receive(
    source: BinaryIO, folder: str, about: Mapping[str, Optional[str]], limit: int = LIMIT, seconds: float = SECONDS
) -> str:
    """Write the dump into the folder, and return its path. Zeros are holes. Memory: one megabyte.

    ``about`` has what the kernel says of the process: "exe", "pid", "time", "host", "version". What is beyond ``limit``
    bytes or arrives after ``seconds`` is left away: the dump is truncated then, and its triage says so. Raises
    UserError where nothing arrives, or where the file cannot be written.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "_", about.get("exe") or "unknown")[-64:]
    told = about.get("time") or ""
    when = float(told) if re.fullmatch(r"\d{1,12}", told) else time.time()
    pid = re.sub(r"\D", "", about.get("pid") or "0")[:10]
    path = os.path.join(folder, f"core.{name}.{pid}.{when:.0f}")
    ends = time.monotonic() + seconds
    size = 0
    try:
        with open(path, "xb") as out:
            os.fchmod(out.fileno(), 0o600)
            while size < limit and time.monotonic() < ends:
                chunk = source.read(min(_CHUNK, limit - size))
                if not chunk:
                    break
                write_sparse(out, chunk)
                size += len(chunk)
            out.truncate(size)
        with open(path + SIDE, "x", encoding="utf-8") as side:
            json.dump({"host": about.get("host"), "time": when, "version": about.get("version")}, side)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}", "--spool DIR: where dumps are kept") from None
    if not size:
        os.unlink(path)
        os.unlink(path + SIDE)
        raise UserError("no dump arrives on standard input", "dmods triage - --db FILE < CORE; or in core_pattern")
    return path
