"""A live server with requests from two threads, and what /proc says of it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fixtures.limits import HANG


@dataclass
class Server:
    process: subprocess.Popen[str]
    port: int
    sparse: int

    @property
    def pid(self) -> int:
        return self.process.pid

    def asked(self, number: int) -> int:
        with socket.create_connection(("127.0.0.1", self.port), timeout=HANG) as client:
            client.sendall(b"%d\n" % number)
            return int(client.makefile().readline())


@contextmanager
def running(program: Path, megabytes: int = 1, far: int = 32) -> Iterator[Server]:
    """Yield the server. It has so much memory, and a mapping that is touched only ``far`` megabytes from its start."""
    process = subprocess.Popen([str(program), str(megabytes), str(far)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"port (\d+) sparse (0x[0-9a-f]+)\n", process.stdout.readline())
        assert found is not None
        yield Server(process, int(found[1]), int(found[2], 16))
    finally:
        process.kill()
        process.communicate()


@dataclass
class Load:
    """Requests from two threads until it is stopped. Each has its own answer."""

    server: Server
    answered: int = 0
    lost: list[object] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Load:
        self._threads = [threading.Thread(target=self._ask, args=(number << 20,)) for number in (1, 2)]
        for thread in self._threads:
            thread.start()
        return self

    def _ask(self, number: int) -> None:
        while not self._ended.is_set():
            try:
                answer = self.server.asked(number)
            except (OSError, ValueError) as error:
                self.lost.append(error)
                return
            if answer != number + 1:
                self.lost.append((number, answer))
            number += 1
            self.answered += 1

    def until(self, count: int) -> None:
        """Wait until so many more requests were answered."""
        wanted = self.answered + count
        wait_for(lambda: self.answered >= wanted or bool(self.lost))
        assert not self.lost

    def __exit__(self, *_others: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(HANG)


def wait_for(ready: Any) -> None:
    deadline = time.monotonic() + HANG
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def status(pid: int) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):\s*(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))


def touched(pid: int) -> dict[str, int]:
    """Return the mappings, and how many kB of each are in memory. The vdso is the kernel's own."""
    text = Path(f"/proc/{pid}/smaps").read_text()
    found = re.findall(r"^([0-9a-f]+-[0-9a-f]+ .*)\n(?:\w+:.*\n)*?Rss: +(\d+) kB$", text, re.MULTILINE)
    return {line: int(size) for line, size in found if "[vdso]" not in line}


def grown(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Return the mappings that have more in memory than before. A machine that is short of memory takes pages away."""
    return [line for line, size in after.items() if size > before.get(line, -1)]


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: all(state == "T" for state in states(pid)))


def states(pid: int) -> list[str]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return found
