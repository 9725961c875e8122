"""drgn's prompt on a terminal of its own, as a user has it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Optional

from fixtures.limits import HANG
from tests.drgn.conftest import DRGN, drgn_environment

PROMPT = ">>> "


class Prompt:
    """A drgn at its prompt: ``with Prompt(where, home, "-c", core) as drgn: drgn.ask("%findleaks")``."""

    def __init__(self, where: Path, home: Path, *arguments: object) -> None:
        # This is the plain prompt of code.InteractiveConsole. Python 3.13's prompt redraws while one types.
        environment = {**drgn_environment(home), "PYTHON_BASIC_REPL": "1"}
        self._terminal, theirs = pty.openpty()
        # The terminal is so wide that no line is broken: the answers are compared with those in a pipe.
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 1000, 0, 0))
        # A shell that runs the suite in the background makes it ignore SIGINT. Children inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            words = ["setsid", "--ctty", str(DRGN), *map(str, arguments)]
            self._process = subprocess.Popen(
                words, cwd=where, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
            )
        finally:
            signal.signal(signal.SIGINT, before)
        os.close(theirs)

    def __enter__(self) -> Prompt:
        self.until(PROMPT)
        # Skip the banner, which has lines that begin with the prompt.
        self.ask("print('be' + 'gin')", "begin\r\n>>> ")
        return self

    def until(self, end: str, seconds: float = HANG) -> str:
        """Return what drgn writes up to and with ``end``, without escape sequences."""
        said = ""
        deadline = time.monotonic() + seconds
        while end not in said:
            assert time.monotonic() < deadline, f"no {end!r} in {said!r}"
            waiting = select.poll()  # select() knows no descriptor above 1023
            waiting.register(self._terminal, select.POLLIN)
            if waiting.poll(100):
                said += os.read(self._terminal, 65536).decode(errors="replace")
                said = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", said)
        return said

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def ask(self, line: str, end: str = PROMPT) -> list[str]:
        """Type a line. Return the lines of the answer."""
        self.type(f"{line}\n")
        said = self.until(end)
        return said.replace("\r", "").split("\n")[1:-1]  # without the echo and the next prompt

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)
