"""gdb's streams: where notes, errors and progress go, and whether the answer was written.

gdb's `pipe` redirects gdb's own stderr along with its stdout (execute_command_to_ui_file). So notes go to the stderr of
the process.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import TextIO

import gdb

from dmods.errors import OutputError
from dmods.output.layout import paragraph

_NARROWEST = 20  # columns; nothing can be laid out in fewer


def stderr() -> TextIO:
    """Return the stream for notes, errors and progress."""
    # gdb keeps a line without a newline in its buffer. That line must come before what is written here.
    gdb.flush(gdb.STDOUT)
    return sys.stderr if sys.__stderr__ is None or _tui() else sys.__stderr__


def note(text: str) -> None:
    """Write lines about the answer. They are not part of the answer."""
    stream, limit = stderr(), width() or None
    stream.write("".join(paragraph(f"dmods: {line}", limit) + "\n" for line in text.splitlines()))
    stream.flush()


def _tui() -> bool:
    """Return whether gdb's full-screen interface is on. Then only gdb itself can write to the terminal."""
    try:
        return "not active" not in gdb.execute("info win", to_string=True)
    except gdb.error:  # a gdb without a full-screen interface
        return False


def width() -> int:
    """Return how long gdb's lines may be; 0 where that does not matter.

    gdb has no limit while its output goes to `pipe`, to a string or to a file (gdb/utils.c, init_page_info). Its pager
    counts a line that is as long as the terminal is wide as two, so a line is one shorter.
    """
    limit = _limit()
    return limit - 1 if limit > _NARROWEST and os.isatty(1) else 0


def _limit() -> int:
    """Return gdb's parameter; 0: no limit."""
    limit = gdb.parameter("width")
    return limit if isinstance(limit, int) else 0


def fit_terminal() -> None:
    """Have a gdb that was started with -batch lay its lines out for its terminal.

    Such a gdb has no limit (gdb/utils.c, init_page_info), and the terminal would break long lines within cells. The
    limit must be gdb's own parameter: gdb takes it away while its output goes to `pipe` or to a file.
    """
    if not os.isatty(1) or _limit():
        return
    try:
        columns = os.get_terminal_size(1).columns
    except OSError:
        return
    if columns > _NARROWEST:
        gdb.execute(f"set width {columns}")  # with to_string, gdb would restore the old width


def check_stdout() -> None:
    """Raise OutputError where gdb could not write its standard output. gdb itself does not notice a full disk.

    gdb writes through libc's stdout (gdb/ui-file.c, stdio_file::puts), which remembers that a write failed. No disk
    is behind a pipe, and its reader may close it early.
    """
    mode = os.fstat(1).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        gdb.flush(gdb.STDOUT)
        return
    try:
        import ctypes  # it takes 2 ms
    except ImportError:  # a gdb whose Python has no libffi
        return
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        stream = ctypes.c_void_p.in_dll(libc, "stdout")
    except ValueError:  # this C library hides stdout's error flag
        return
    failed = libc.fflush(stream) != 0
    reason = os.strerror(ctypes.get_errno()) if failed else "a write failed, is the disk full?"
    failed = failed or libc.ferror(stream) != 0
    libc.clearerr(stream)
    if failed:
        raise OutputError(reason)
