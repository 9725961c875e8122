"""Paths whose bytes are not UTF-8, in gdb: its Python can neither say nor load them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gdb.conftest import Gdb


@pytest.mark.parametrize("by_gdb", [False, True])
def test_the_core_is_found(gdb: Gdb, raw_core: Path, by_gdb: bool) -> None:
    words = ("-c", raw_core) if by_gdb else (raw_core,)
    done = gdb("-x", "heapcmds.py", *words, "-ex", "findleaks", "-ex", "maps -v")
    assert "50 buffers, 5200 bytes" in done.stdout, done.stderr
    assert "100%\ufffd" in done.stdout
    assert "defect" not in done.stdout + done.stderr
