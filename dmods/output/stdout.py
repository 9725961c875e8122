"""Check a program's standard output: a failure to write it is an error of its own kind.

The kernel starts the program of core_pattern without output and stderr (kernel/umh.c, fs/coredump.c).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from dmods.errors import OutputError


class _Checked:
    """A text stream that raises OutputError where the stream itself raises OSError.

    OSError has many causes. Without this class, a full disk would look like a defect. BrokenPipeError passes unchanged:
    the reader has closed the pipe on purpose.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def closed_from_start(self) -> bool:
        """Return whether the program was started without the stream."""
        return self._stream is None

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


def occupy_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Otherwise the next file that is opened gets that number. A child that writes to its stderr would write into it.
    sys.stdout stays None: what cannot be shown is an error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(null, True)
    if sys.stderr is None:
        sys.stderr = _nowhere()


def _nowhere() -> TextIO:
    """Return a stream that stays open as long as the program runs. What is written to it is lost."""
    return open(os.devnull, "w", encoding="utf-8")


def allow_no_output() -> None:
    """Let a program whose standard output is closed go on. Its result is in files."""
    if isinstance(sys.stdout, _Checked) and sys.stdout.closed_from_start:
        sys.stdout = _nowhere()


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
