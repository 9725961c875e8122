"""`dmods NAME DUMP` hands the dump to drgn, unless drgn cannot open it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dmods.cli.drgn_starter import run_command, split_options
from dmods.errors import UserError
from tests.corekit import Memory, elf64_core, note


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
    monkeypatch.setattr("dmods.cli.drgn_starter.become", lambda _path, words, _typed: started.append(words) or 0)
    dump = tmp_path / "vmcore"
    dump.write_bytes(content)
    with pytest.raises(UserError, match="is a flattened dump that is cut"):
        run_command(str(dump), "panicinfo", [])
    assert not started
    dump.write_bytes(HEADER + RECORD + struct.pack(">qq", -1, -1))
    assert run_command(str(dump), "panicinfo", ["-v"], ["-s", "vmlinux"]) == 0
    assert started[0][:5] == ["-q", "-s", "vmlinux", "-c", str(dump)]
    assert started[0][-2:] == ["panicinfo", "-v"]


def test_a_dump_that_is_cut_or_damaged_in_its_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("dmods.cli.drgn_starter.become", lambda _path, words, _typed: started.append(words) or 0)
    dump = tmp_path / "vmcore"
    vmcore = elf64_core([Memory(0x1000, bytes(4096))], note(0, b"X=1\n" * 900, b"VMCOREINFO"))
    for content in (vmcore[:20], vmcore[:3000], b"KDUMP   ", b"KDUMP   \6\0\0\0" + bytes(4000)):
        dump.write_bytes(content)
        with pytest.raises(UserError, match="cut inside its headers"):
            run_command(str(dump), "panicinfo", [])
    dump.write_bytes(b"KDUMP   " + b"\xff" * 9000)
    with pytest.raises(UserError, match="its header is damaged"):
        run_command(str(dump), "panicinfo", [])
    assert not started
    for content in (vmcore, b"KDUMP   \6\0\0\0" + bytes(9000)):
        dump.write_bytes(content)
        assert run_command(str(dump), "panicinfo", []) == 0
