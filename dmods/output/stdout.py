"""Check a program's standard output: a failure to write it is an error of its own kind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dmods.errors import OutputError


class _Checked:
    """A text stream that raises OutputError where the stream itself raises OSError.

    OSError has many causes. Without this class, a full disk would look like a defect. BrokenPipeError passes unchanged:
    the reader has closed the pipe on purpose.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if self._stream is None:
            raise OutputError("it is closed")
        try:
            count: int = self._stream.write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.strerror or str(error)) from None
        return count

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self._stream is None:
            return
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.strerror or str(error)) from None

    def isatty(self) -> bool:
        return self._stream is not None and bool(self._stream.isatty())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def checked_stdout() -> Iterator[None]:
    """Make failures of sys.stdout raise OutputError, and flush it at the end. Afterwards it never fails again."""
    before = sys.stdout
    checked = _Checked(before)
    sys.stdout = checked
    try:
        try:
            yield
        finally:
            checked.flush()
    except (BrokenPipeError, OutputError):
        _discard(before)
        raise
    finally:
        sys.stdout = before


def _discard(stream: Any) -> None:
    """Discard what the stream still holds. Otherwise Python writes it at exit, and reports the failure again."""
    if stream is not None:
        try:
            target = stream.fileno()
        except (OSError, AttributeError):  # the buffer of a test is not a file
            return
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, target)
        os.close(null)
