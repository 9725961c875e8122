"""Dumps that were compressed, as systemd-coredump leaves them: what is in them, and a plain copy for as long as needed.

gzip, xz and bzip2 are read by Python itself, zstd and lz4 by the programs of these names.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Callable, NamedTuple, Optional, cast

from dmods.errors import UserError

_CHUNK = 1 << 20
_BLOCK = 4096
_PYTHON: dict[str, Callable[..., Any]] = {"gzip": gzip.open, "xz": lzma.open, "bzip2": bz2.open}
# The first bytes of a file: RFC 1952; the XZ format 2.1.1.1; bzip2; RFC 8878, 3.1.1; the LZ4 frame format.
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
)
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError)


class Bounds(NamedTuple):
    """The most bytes of a plain copy, and the most seconds that it may take."""

    size: int
    seconds: float


def form_of(path: str) -> Optional[str]:
    """Return the name of the compression, or None for a file that is not compressed. Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(8)
    return next((name for magic, name in _MAGIC if head.startswith(magic)), None)


def can_unpack(form: str) -> bool:
    """Return whether this machine can unpack the form."""
    return form in _PYTHON or shutil.which(form) is not None


def head_of(path: str, form: str, count: int) -> bytes:
    """Return the first bytes of what is in the file; fewer where it is damaged."""
    try:
        with _opened(path, form) as source:
            return source.read(count)
    except _BROKEN:
        return b""


@contextmanager
def plain(path: str, form: str, bounds: Bounds, folder: Optional[str] = None) -> Iterator[str]:
    """Make a plain copy and yield its path. It goes away at the end. Zeros are holes in it.

    A copy that would be larger is cut: its triage says that it is truncated. Raises UserError for a damaged file, for
    one that takes too long, and where the program that unpacks it is not installed.
    """
    if not can_unpack(form):
        raise UserError(f"it is compressed, and the program {form} is not installed", f"apt install {form}")
    handle, copy = tempfile.mkstemp(prefix="dmods-", suffix=".core", dir=folder)
    try:
        with os.fdopen(handle, "wb") as out:
            _copy(path, form, out, bounds)
        yield copy
    finally:
        os.unlink(copy)


def _copy(path: str, form: str, out: BinaryIO, bounds: Bounds) -> None:
    ends, size = time.monotonic() + bounds.seconds, 0
    try:
        with _opened(path, form) as source:
            while size < bounds.size:
                chunk = source.read(min(_CHUNK, bounds.size - size))
                if not chunk:
                    break
                write_sparse(out, chunk)
                size += len(chunk)
                if time.monotonic() > ends:
                    raise UserError(f"it took longer than {bounds.seconds:.0f} s to unpack", "--seconds N")
        out.truncate(size)
    except _BROKEN as error:
        raise UserError(f"it cannot be unpacked by {form}: {error}"[:300], "is the file whole?") from None


@contextmanager
def _opened(path: str, form: str) -> Iterator[BinaryIO]:
    """Yield a stream of what is in the file. Raises one of _BROKEN where it is damaged."""
    reader = _PYTHON.get(form)
    if reader is not None:
        with reader(path, "rb") as source:
            yield cast(BinaryIO, source)
        return
    with tempfile.TemporaryFile() as said, open(path, "rb") as packed:
        process = subprocess.Popen([form, "-d", "-c"], stdin=packed, stdout=subprocess.PIPE, stderr=said)
        assert process.stdout is not None
        try:
            yield cast(BinaryIO, process.stdout)
            ended = process.stdout.read(1) == b""
        finally:
            process.stdout.close()
            if process.poll() is None and not _ends(process):
                process.kill()
                process.wait()
        if ended and process.returncode:
            said.seek(0)
            raise EOFError(said.read(200).decode(errors="replace").strip() or f"status {process.returncode}")


def _ends(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        return False
    return True


def write_sparse(out: BinaryIO, chunk: bytes) -> None:
    """Write a piece at the file's place. Blocks of zeros are passed over: the caller sets the size at the end."""
    zeros = bytes(_BLOCK)
    for at in range(0, len(chunk), _BLOCK):
        block = chunk[at : at + _BLOCK]
        if block == zeros[: len(block)]:
            out.seek(len(block), os.SEEK_CUR)
        else:
            out.write(block)
