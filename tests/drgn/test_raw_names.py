"""Paths whose bytes are not UTF-8, in drgn, which takes the core's path for UTF-8."""

from __future__ import annotations

from pathlib import Path

from tests.drgn.conftest import Drgn


def test_the_core_is_found(drgn: Drgn, raw_core: Path) -> None:
    done = drgn("-q", "-c", raw_core, "./findleaks")
    assert "50 buffers, 5200 bytes" in done.stdout, done.stderr
