"""Files by their build-id from debuginfod: its clients' cache, and its servers where the user asked for them.

dmods asks a server only where DEBUGINFOD_URLS names one and the user said ``--debuginfod`` (ASKED is set). What comes
is kept where every client of debuginfod finds it: debuginfod_find_debuginfo(3), "CACHE".
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from typing import IO, Optional

from dmods.base.progress import Progress
from dmods.modules.localfiles import open_local

#: The environment variable that is set where debuginfod may be asked.
ASKED = "DMODS_DEBUGINFOD"
URLS = "DEBUGINFOD_URLS"
_SECONDS = 30  # without an answer
_MOST = 4 << 30  # bytes of a file
_STEP = 1 << 20
_MOST_NOTES = 3

#: Why files were not downloaded: one line each.
problems: list[str] = []


def debuginfod_file(build_id: str, kind: str = "debuginfo") -> Optional[str]:
    """Return the file ("debuginfo" or "executable") that a debuginfod client, such as gdb, has downloaded before.

    Where the user asked for it, dmods is such a client. The result is None where nobody has the file.
    """
    asked = os.environ.get(ASKED) and os.environ.get(URLS, "").strip()
    return _cached(build_id, kind) or (_download(build_id, kind) if asked else None)


def _cached(build_id: str, kind: str) -> Optional[str]:
    """Return the path of a file that was downloaded before, or None."""
    paths = [os.path.join(folder, build_id, kind) for folder in _folders()]
    # An empty file says that the server had none (debuginfod_find_debuginfo(3)).
    return next((path for path in paths if os.path.isfile(path) and os.path.getsize(path)), None)


def told() -> list[str]:
    """Return notes about what no server gave, and forget them."""
    notes = problems[:_MOST_NOTES]
    if len(problems) > _MOST_NOTES:
        notes.append(f"debuginfod lacks {len(problems) - _MOST_NOTES} more files")
    problems.clear()
    return notes


@cache
def _download(build_id: str, kind: str) -> Optional[str]:
    """Return the path of a file that a server had, or None. A server is asked once for each file."""
    import shutil

    with Progress(f"asking debuginfod for the {kind} of {build_id[:16]}") as bar:
        bar.update(0, 0)
        found, why = _by_client(build_id, kind) if shutil.which("debuginfod-find") else _by_http(build_id, kind)
    if found is not None and not _is_of(found, build_id):
        why, found = "what it gave has another build-id", None
    if found is None:
        problems.append(f"debuginfod has no {kind} of build-id {build_id}: {why}")
    return found


def _folders() -> list[str]:
    home = os.path.expanduser("~")
    folders = [
        os.environ.get("DEBUGINFOD_CACHE_PATH"),
        os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "debuginfod_client"),
        os.path.join(home, ".debuginfod_client_cache"),
    ]
    return [folder for folder in folders if folder]


def _number(name: str, usual: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else usual


def _by_client(build_id: str, kind: str) -> tuple[Optional[str], str]:
    """Return the file that debuginfod-find got, or None and why."""
    import subprocess

    settings = {"DEBUGINFOD_TIMEOUT": str(_SECONDS), "DEBUGINFOD_MAXSIZE": str(_MOST), **os.environ}
    try:
        done = subprocess.run(
            ["debuginfod-find", kind, build_id],
            capture_output=True, text=True, check=False, env=settings, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return None, str(error)
    path = done.stdout.strip()
    if done.returncode == 0 and os.path.isfile(path):
        return path, ""
    return None, (done.stderr.strip().splitlines() or ["debuginfod-find says nothing"])[-1]


def _by_http(build_id: str, kind: str) -> tuple[Optional[str], str]:
    """Return the file of the first server that has it, or None and why not of the last."""
    why = f"{URLS} names no server"
    for url in os.environ[URLS].split():
        if not url.startswith(("http://", "https://")):  # "ima:enforcing" says how signatures are checked
            continue
        try:
            return _get(f"{url.rstrip('/')}/buildid/{build_id}/{kind}", build_id, kind), ""
        except (OSError, ValueError) as error:  # urllib's errors and http.client's are among them
            why = f"{url}: {error if hasattr(error, 'code') else getattr(error, 'reason', None) or error}"
    return None, why


def _get(url: str, build_id: str, kind: str) -> str:
    """Download a file into the cache and return its path. Raises OSError."""
    import tempfile
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    timeout, most = _number("DEBUGINFOD_TIMEOUT", _SECONDS), _number("DEBUGINFOD_MAXSIZE", _MOST)
    folder = os.path.join(_folders()[0], build_id)
    try:
        with urlopen(Request(url, headers={"User-Agent": "dmods"}), timeout=timeout) as answer:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{kind}.", delete=False) as file:
                try:
                    _copy(answer, file, most)
                    if not _is_of(file.name, build_id):
                        raise OSError("what it gave has another build-id")
                    path = os.path.join(folder, kind)
                    os.replace(file.name, path)
                    return path
                except BaseException:
                    with suppress(OSError):
                        os.unlink(file.name)
                    raise
    except HTTPException as error:
        raise OSError(f"the answer is damaged ({type(error).__name__})") from None


def _copy(answer: IO[bytes], file: IO[bytes], most: int) -> None:
    promised = _length(answer)
    if promised is not None and promised > most:
        raise OSError(f"the file has {promised} bytes, and at most {most} are taken (DEBUGINFOD_MAXSIZE)")
    size = 0
    while data := answer.read(_STEP):
        size += len(data)
        if size > most:
            raise OSError(f"the file has more than {most} bytes (DEBUGINFOD_MAXSIZE)")
        file.write(data)
    if promised is not None and size < promised:
        raise OSError(f"the answer ended after {size} of {promised} bytes")
    file.flush()


def _length(answer: IO[bytes]) -> Optional[int]:
    text = getattr(answer, "headers", {}).get("Content-Length") or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _is_of(path: str, build_id: str) -> bool:
    """Return whether the file is an ELF file with this build-id."""
    found = open_local(path)
    return found is not None and found.build_id == build_id
