"""What `dmods NAME DUMP` hands to drgn, and the dumps that drgn is not asked to open."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dmods.cli.drgn_starter import run_command, split_options
from dmods.errors import UserError


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        ([], [], []),
        (["dump", "-v"], [], ["dump", "-v"]),
        (["-s", "vmlinux", "dump", "-s", "x.ko"], ["-s", "vmlinux", "-s", "x.ko"], ["dump"]),
        (["dump", "--symbols=vmlinux", "-svmlinux"], ["--symbols=vmlinux", "-svmlinux"], ["dump"]),
        (["dump", "--architecture", "x86_64", "1"], ["--architecture", "x86_64"], ["dump", "1"]),
        (["dump", "--architecture=aarch64"], ["--architecture=aarch64"], ["dump"]),
        (["dump", "--", "-s", "x"], [], ["dump", "--", "-s", "x"]),
        (["dump", "-s"], ["-s"], ["dump"]),
    ],
)
def test_options_of_drgn(words: list[str], options: list[str], rest: list[str]) -> None:
    assert split_options(words) == (options, rest)


HEADER = b"makedumpfile\0\0\0\0".ljust(4096, b"\0")
RECORD = struct.pack(">qq", 0, 8) + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        HEADER[:20],
        HEADER,
        HEADER + RECORD * 3,
        HEADER + RECORD + struct.pack(">qq", 8, 1 << 62),
        HEADER + RECORD + struct.pack(">qq", 8, -5) + RECORD,
        HEADER + RECORD + struct.pack(">qq", 8, 0) * 1000,
        HEADER + RECORD + struct.pack(">qq", -1, -1)[:15],
    ],
)
def test_a_flattened_dump_without_its_last_record(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("dmods.cli.drgn_starter.become", lambda _path, words: started.append(words) or 0)
    dump = tmp_path / "vmcore"
    dump.write_bytes(content)
    with pytest.raises(UserError, match="is a flattened dump that is cut"):
        run_command(str(dump), "panicinfo", [])
    assert not started
    dump.write_bytes(HEADER + RECORD + struct.pack(">qq", -1, -1))
    assert run_command(str(dump), "panicinfo", ["-v"], ["-s", "vmlinux"]) == 0
    assert started[0][:5] == ["-q", "-s", "vmlinux", "-c", str(dump)]
    assert started[0][-2:] == ["panicinfo", "-v"]
