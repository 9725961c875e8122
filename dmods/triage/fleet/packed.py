"""A plain copy of a compressed dump, for as long as its triage runs."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.corefile.crash_handlers import apport
from dmods.corefile.packed import Limits, Unpacked, form_of, unpack
from dmods.corefile.unpacked import about
from dmods.errors import UserError

_BLOCK = 4096


class Bounds(NamedTuple):
    """The most bytes of a plain copy, and the most seconds that it may take."""

    size: int
    seconds: float


@contextmanager
def plain(path: str, form: str, bounds: Bounds, folder: Optional[str] = None) -> Iterator[str]:
    """Make a plain copy and yield its path. It goes away at the end. Zeros are holes in it.

    A copy that would be larger is cut, and so is one of a damaged file: its triage says that it is truncated. What the
    keeper of the file knows is found by the copy, too. ``form`` is "apport" for a core in a report.

    Raises UserError for one that takes too long, and for a file of which nothing can be unpacked.
    """
    with tempfile.TemporaryDirectory(prefix="dmods-", dir=folder) as own:
        copy, inner = os.path.join(own, "dump.core"), path
        try:
            if form == apport.KEEPER:
                inner = os.path.join(own, "packed")
                form = _write_payload(path, inner, bounds)
            made = _unpack(inner, form, copy, bounds)
            status = os.stat(path)
            os.utime(copy, ns=(status.st_mtime_ns, status.st_mtime_ns))
        except OSError as error:
            raise UserError(f"it cannot be unpacked: {error.strerror}", "is there room for it?") from None
        with open(about(copy), "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump({"source": os.path.abspath(path), "size": made.size}, file)
        yield copy


def _unpack(path: str, form: str, copy: str, bounds: Bounds) -> Unpacked:
    ends = time.monotonic() + bounds.seconds

    def check_time(_done: int) -> None:
        if time.monotonic() > ends:
            raise UserError(f"it took longer than {bounds.seconds:.0f} s to unpack", "--seconds N")

    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    made = unpack(path, form, copy, Limits(bounds.size, bounds.size), check_time)
    if made.size == 0:
        raise UserError(f"it cannot be unpacked by {form}: {made.damage}"[:300], "is the file whole?")
    return made


def _write_payload(path: str, to: str, bounds: Bounds) -> str:
    """Write the compressed core of a report, and return its form. Raises OSError and UserError."""
    with open(to, "xb") as file:
        ended = apport.write_core(path, file, bounds.size)
    form = form_of(to)
    if ended is None or form is None:
        what = "it is a report of apport without a core" if ended is None else "the core in the report is damaged"
        raise UserError(what, "a report that was sent may have lost it")
    return form


def write_sparse(out: BinaryIO, chunk: bytes) -> None:
    """Write a piece at the file's place. Blocks of zeros are passed over: the caller sets the size at the end."""
    zeros = bytes(_BLOCK)
    for at in range(0, len(chunk), _BLOCK):
        block = chunk[at : at + _BLOCK]
        if block == zeros[: len(block)]:
            out.seek(len(block), os.SEEK_CUR)
        else:
            out.write(block)
