"""Run programs on a terminal of a given size."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Optional

from fixtures.limits import HANG

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[=>]|\][^\x07]*\x07)")


def on_terminal(
    command: Sequence[str],
    columns: int = 80,
    environment: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    timeout: float = HANG,
) -> tuple[int, list[str]]:
    """Return the exit status of the command, and the lines that it wrote to its terminal, without escape sequences."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 1000, columns, 0, 0))
    settings = termios.tcgetattr(slave)
    settings[1] &= ~termios.ONLCR
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    whole = {**kept, "TERM": "xterm", **(environment or {})}
    process = subprocess.Popen(list(command), stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=whole)
    os.close(slave)
    shown = b""
    end = time.monotonic() + timeout
    try:
        while time.monotonic() < end:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    data = os.read(master, 65536)
                except OSError:  # the last program has closed the terminal
                    break
                if not data:
                    break
                shown += data
        status = process.wait(timeout=max(1.0, end - time.monotonic()))
    finally:
        process.kill()
        process.wait()
        os.close(master)
    # A progress bar goes back to the start of its line and writes over it.
    return status, re.split(r"[\r\n]+", _ESCAPES.sub("", shown.decode(errors="replace")))
