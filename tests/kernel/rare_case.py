"""A rare guest (fixtures/kernel/rare.py) whose dump is open, and the answers of the commands."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from dmods.command import KERNEL
from fixtures import answers
from fixtures.kernel import rare
from tests.kernel.memory import open_kernel


class RareCase:
    """A guest, and the answers about it. Each is computed once."""

    def __init__(self, release: str, boot: bool) -> None:
        self.guest = rare.guest(release, boot)
        self.kernel = open_kernel(self.guest)
        self.answer = cache(self._answer)

    def _answer(self, *words: str) -> dict[str, Any]:
        return answers.answer(self.kernel, *words, side=KERNEL)

    def rows(self, table: str, *words: str) -> list[dict[str, Any]]:
        """Return the rows of a table of a command's answer, with addresses as numbers."""
        rows = answers.by_name(self.answer(*words))[table]
        return [{name: _number(value) for name, value in row.items()} for row in rows]

    def planted(self, *ways: str) -> list[tuple[int, int]]:
        """Return (address, bytes) of the objects that the module made in these ways."""
        return [(address, size) for how, address, size in self.guest.ledger if how in ways]


def _number(value: Any) -> Any:
    """Return an address as a number, and everything else as it is."""
    return int(value, 16) if isinstance(value, str) and re.fullmatch("0x[0-9a-f]+", value) else value


@cache
def case(release: str, boot: bool = False) -> RareCase:
    """Return the guest of that kernel. ``boot``: KFENCE has been on since the boot."""
    return RareCase(release, boot)
