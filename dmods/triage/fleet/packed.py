"""A plain copy of a compressed dump, for as long as its triage runs."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, Optional

from dmods.corefile.packed import Limits, unpack
from dmods.errors import UserError

_BLOCK = 4096


class Bounds(NamedTuple):
    """The most bytes of a plain copy, and the most seconds that it may take."""

    size: int
    seconds: float


@contextmanager
def plain(path: str, form: str, bounds: Bounds, folder: Optional[str] = None) -> Iterator[str]:
    """Make a plain copy and yield its path. It goes away at the end. Zeros are holes in it.

    A copy that would be larger is cut, and so is one of a damaged file: its triage says that it is truncated. Raises
    UserError for one that takes too long, and for a file of which nothing can be unpacked.
    """
    ends = time.monotonic() + bounds.seconds

    def check_time(_done: int) -> None:
        if time.monotonic() > ends:
            raise UserError(f"it took longer than {bounds.seconds:.0f} s to unpack", "--seconds N")

    handle, copy = tempfile.mkstemp(prefix="dmods-", suffix=".core", dir=folder)
    os.close(handle)
    try:
        try:
            made = unpack(path, form, copy, Limits(bounds.size, bounds.size), check_time)
        except OSError as error:
            raise UserError(f"it cannot be unpacked: {error.strerror}", "is there room for it?") from None
        if made.size == 0:
            raise UserError(f"it cannot be unpacked by {form}: {made.damage}"[:300], "is the file whole?")
        yield copy
    finally:
        os.unlink(copy)


def write_sparse(out: BinaryIO, chunk: bytes) -> None:
    """Write a piece at the file's place. Blocks of zeros are passed over: the caller sets the size at the end."""
    zeros = bytes(_BLOCK)
    for at in range(0, len(chunk), _BLOCK):
        block = chunk[at : at + _BLOCK]
        if block == zeros[: len(block)]:
            out.seek(len(block), os.SEEK_CUR)
        else:
            out.write(block)
