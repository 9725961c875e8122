"""Triage of one dump in a process of its own, which may neither hang nor take all memory nor end its caller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.corefile.unpacked import form_of
from dmods.errors import UserError
from dmods.triage.fleet import packed
from dmods.triage.fleet.content import is_kernel_dump
from dmods.triage.fleet.push import MOST

SECONDS = 600.0  # for one dump
UNPACKED = 64 << 30  # bytes of a dump that was compressed; zeros are holes
MEMORY = 8 << 30  # bytes of address space beyond the dump's size
_LONGEST = 64 << 20  # bytes of a report
_MARGIN = 30.0  # seconds that a triage may take to end after its own time is over
_PACKAGES = Path(__file__).resolve().parents[3]
# The process that reads the dump limits itself: no code of ours runs between fork() and exec(), where threads may hang.
_BOUNDED = """
import resource, sys
most, packages = int(sys.argv[1]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_AS, (most, most))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path[0] = packages
from dmods.__main__ import main
sys.exit(main(sys.argv[3:]))
"""


class Limits(NamedTuple):
    """The most seconds that one dump may take, and the most memory beyond its own size, in bytes.

    ``symbols`` are files with debug information of kernels. ``unpacked`` is the most bytes of a plain copy of a dump
    that is compressed.
    """

    seconds: float = SECONDS
    memory: int = MEMORY
    symbols: tuple[str, ...] = ()
    unpacked: int = UNPACKED


DEFAULT = Limits()


class Examined(NamedTuple):
    """A dump's report (the object that `triage --json` prints), or why it has no report.

    ``profile`` is its heap profile, where one was asked for and could be made.
    """

    report: Optional[dict[str, Any]]
    reason: Optional[str]
    seconds: float
    profile: Optional[bytes] = None


def examine(path: str, limits: Limits = DEFAULT, redact: bool = False, profile: bool = False) -> Examined:
    """Return the report about a dump, or the reason why it has no report. ``profile``: its heap profile, too.

    Raises nothing.
    """
    started = time.monotonic()
    try:
        form = form_of(path)
        if form is not None:
            with packed.plain(path, form, packed.Bounds(limits.unpacked, limits.seconds)) as copy:
                found = examine(copy, limits, redact, profile)
            if found.report is not None:
                found.report["target"] = os.path.abspath(path)
            return found._replace(seconds=time.monotonic() - started)
    except UserError as error:
        return Examined(None, error.what, time.monotonic() - started)
    except OSError as error:
        return Examined(None, f"it cannot be read: {error.strerror}", time.monotonic() - started)
    words = ["triage", os.path.abspath(path), "--json", "--seconds", f"{limits.seconds:.0f}"]
    if limits.symbols and is_kernel_dump(path):
        words += [word for name in limits.symbols for word in ("-s", name)]
    report, reason = _report([*words, *(["--redact"] if redact else [])], path, limits)
    made = _profile(path, limits) if profile and report is not None and not is_kernel_dump(path) else None
    return Examined(report, reason, time.monotonic() - started, made)


def _report(words: Sequence[str], path: str, limits: Limits) -> tuple[Optional[dict[str, Any]], Optional[str]]:
    try:
        return _answer(*_run(words, path, limits))
    except UserError as error:
        return None, error.what


def _profile(path: str, limits: Limits) -> Optional[bytes]:
    """Return the heap profile as a gzip of profile.proto; None where the process has none."""
    with tempfile.TemporaryDirectory(prefix="dmods-") as folder:
        made = os.path.join(folder, "heap.pb.gz")
        try:
            _run(["profile", os.path.abspath(path), "-o", made], path, limits)
            if os.stat(made).st_size > MOST:
                return None
            with open(made, "rb") as file:
                return file.read()
        except (OSError, UserError):
            return None


def _run(words: Sequence[str], path: str, limits: Limits) -> tuple[int, bytes, str]:
    """Run dmods within the limits. Return its status and what it wrote. Raises UserError."""
    try:
        most = os.stat(path).st_size + limits.memory
    except OSError as error:
        raise UserError(f"it cannot be read: {error.strerror}", "") from None
    command = [sys.executable, "-c", _BOUNDED, str(most), str(_PACKAGES), *words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=said, cwd="/", start_new_session=True
            )
        except OSError as error:
            raise UserError(f"the triage could not be started: {error.strerror}", "") from None
        try:
            status = process.wait(limits.seconds + _MARGIN)
        except subprocess.TimeoutExpired:
            raise UserError(f"it took longer than {limits.seconds:.0f} s", "--seconds N") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        said.seek(0)
        return status, out.read(_LONGEST + 1), said.read(_LONGEST).decode(errors="replace")


def _answer(status: int, text: bytes, complaint: str) -> tuple[Optional[dict[str, Any]], Optional[str]]:
    if status < 0:
        return None, f"the triage was ended by {signal.Signals(-status).name}"
    if len(text) > _LONGEST:
        return None, "its report is longer than 64 MiB"
    try:
        told = json.loads(text)
    except ValueError:
        lines = complaint.strip().splitlines()
        return None, (lines[-1] if lines else f"the triage ended with status {status}")[:500]
    if not isinstance(told, dict) or "tables" not in told:
        error = told.get("error") if isinstance(told, dict) else None
        return None, str(error.get("what") if isinstance(error, dict) else error or "there is no report")[:500]
    nothing = _nothing(told)
    return (None, nothing) if nothing is not None else (told, None)


def _nothing(told: dict[str, Any]) -> Optional[str]:
    """Return why the report says nothing of the process: the dump ends within its headers. None if it does."""
    if told["totals"].get("memory_bytes") != 0:
        return None
    rows: list[dict[str, Any]] = next((one["rows"] for one in told["tables"] if one["name"] == "unknown"), [])
    return next((str(row["why"]) for row in rows if row["what"] == "the dump"), "it has no memory")[:500]
