"""The headers of compressed kernel dumps, plain and flattened, made up byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Optional

import pytest

from dmods.cli.drgn_starter import run_command
from dmods.corefile import flattened, kdumps
from dmods.errors import UserError
from drgnext.kernel.dump.cpu_notes import read_cpu_notes
from drgnext.kernel.dump.dumpfile import dump_file_notes, dump_level
from drgnext.kernel.dump.target import unreadable
from tests.corekit import note

UNAME = ("Linux", "host", "6.12.0", "#1 SMP", "x86_64")
NT_PRSTATUS = 1
END = struct.pack(">qq", -1, -1)


def prstatus(size: int = 336, pid: int = 7) -> bytes:
    """Return the note of a CPU. Its registers are their own numbers."""
    words = (size - 112) // 8
    data = bytes(32) + struct.pack("<i", pid) + bytes(76) + struct.pack(f"<{words}Q", *range(words))
    return note(NT_PRSTATUS, data)


def kdump(
    uname: tuple[str, ...] = UNAME,
    *,
    level: int = 31,
    part: Optional[tuple[int, int]] = None,
    info: bytes = b"OSRELEASE=6.12.0\n",
    notes: bytes = b"",
    version: int = 6,
) -> bytes:
    """Return a dump that has none of its four page frames."""
    data = bytearray(5 * 4096)
    data[:12] = b"KDUMP   " + struct.pack("<i", version)
    for number, text in enumerate(uname):
        data[12 + 65 * number : 12 + 65 * number + len(text)] = text.encode()
    data = data[: 5 * 4096].ljust(5 * 4096, b"\0")
    struct.pack_into("<IiiI", data, 424, 1, 4096, 2, 2)
    first, end = part or (0, 0)
    places = (4096 + 512, len(info), 8192, len(notes)) if notes else (4096 + 512, len(info), 0, 0)
    struct.pack_into("<QiiQQQQQQ", data, 4096, 0, level, int(part is not None), first, end, *places)
    struct.pack_into("<QQQ", data, 4096 + 80, first, end, 0x10000)
    data[4096 + 512 : 4096 + 512 + len(info)] = info
    data[8192 : 8192 + len(notes)] = notes
    return bytes(data)


def flat(plain: bytes, piece: int = 1000) -> bytes:
    """Return the flattened form, in an order that makedumpfile does not have, with a header that is written twice."""
    pieces = [(at, plain[at : at + piece]) for at in range(0, len(plain), piece)]
    pieces = [(0, b"\xff" * 600), *reversed(pieces)]
    records = (struct.pack(">qq", at, len(data)) + data for at, data in pieces)
    return flattened.MAGIC.ljust(flattened.HEADER, b"\0") + b"".join(records) + END


FORMS: dict[str, Callable[[bytes], bytes]] = {"plain": bytes, "flattened": flat}


@pytest.fixture(params=FORMS)
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[bytes], str]:
    """Return a function that writes a dump in a form and returns its path."""

    def write(plain: bytes) -> str:
        path = tmp_path / "vmcore"
        path.write_bytes(FORMS[request.param](plain))
        return str(path)

    return write


def machine(path: str) -> Optional[str]:
    with open(path, "rb") as file:
        read, _size = flattened.plain_reader_of(file)
        header = kdumps.read_header(read)
        assert header is not None
        return kdumps.machine_of(read, header)


def test_what_was_filtered(write: Callable[[bytes], str]) -> None:
    path = write(kdump(level=24))
    assert dump_file_notes(path)[0] == "the dump was filtered (makedumpfile -d 24): without user data, free pages"
    assert dump_level(path) == 24


def test_the_registers(write: Callable[[bytes], str]) -> None:
    found = read_cpu_notes(write(kdump(notes=prstatus(pid=7) + prstatus(pid=8))))
    assert found.by_kernel
    assert [(one.pid, one.registers["rip"], one.registers["r15"]) for one in found.cpus] == [(7, 16, 0), (8, 16, 0)]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ((0, 0x5000), "the first one, with page frames 0x0 to 0x5000 of 0x10000"),
        ((0x5000, 0x9000), "a later one, with page frames 0x5000 to 0x9000 of 0x10000"),
        ((0x9000, 0x10000), "the last one, with page frames 0x9000 to 0x10000 of 0x10000"),
    ],
)
def test_a_part_of_several(write: Callable[[bytes], str], part: tuple[int, int], said: str) -> None:
    notes = dump_file_notes(write(kdump(part=part)))
    assert notes[1].startswith(
        f"the dump is one part of several (makedumpfile --split): {said}; put all parts together"
    )
    assert "makedumpfile --reassemble" in notes[1]
    assert "truncated" not in " ".join(notes)


def test_a_part_that_does_not_say_of_how_many(write: Callable[[bytes], str]) -> None:
    """Up to version 5, the header has no number of page frames of 64 bits."""
    notes = dump_file_notes(write(kdump(part=(5, 9), version=5)))
    assert "a later one, with page frames 0x5 to 0x9;" in notes[1]


def test_the_error_of_a_later_part_says_what_to_do(write: Callable[[bytes], str]) -> None:
    part: Any = SimpleNamespace(notes=dump_file_notes(write(kdump(part=(0x5000, 0x9000)))))
    error = unreadable(part, "the kernel itself", Exception())
    assert error.what == (
        "the dump lacks the kernel itself: it is one part of several (makedumpfile --split): a later one, with page "
        "frames 0x5000 to 0x9000 of 0x10000"
    )
    assert "makedumpfile --reassemble" in str(error.how)


EMPTY = ("", "", "", "", "")
OF_QEMU = ("", "", "", "", "x86_64")
ARM = b"OSRELEASE=6.12.0\nNUMBER(kimage_voffset)=0xffff800000000000\n"
X86 = b"OSRELEASE=6.12.0\nNUMBER(phys_base)=-5\n"


@pytest.mark.parametrize(
    ("made", "known"),
    [
        (kdump(), "x86_64"),
        (kdump(OF_QEMU), "x86_64"),
        (kdump(EMPTY, info=X86), "x86_64"),
        (kdump(EMPTY, info=ARM), "aarch64"),
        (kdump(EMPTY, notes=prstatus(336)), "x86_64"),
        (kdump(EMPTY, notes=prstatus(392)), "aarch64"),
        (kdump(EMPTY), None),
    ],
)
def test_the_machine(
    write: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch, made: bytes, known: Optional[str]
) -> None:
    """drgn is told the machine where the kernel is not named, unless the user does."""
    path = write(made)
    assert machine(path) == known
    started: list[list[str]] = []
    monkeypatch.setattr("dmods.cli.drgn_starter.become", lambda _path, words, _typed: started.append(words) or 0)
    assert run_command(path, "panicinfo", []) == run_command(path, "panicinfo", [], ["--architecture=ppc64"]) == 0
    told = ["--architecture", known] if known is not None and made != kdump() else []
    assert started[0][1:-4] == told
    assert started[1][1:-4] == ["--architecture=ppc64"]


def elf_header(bits: int, number: int) -> bytes:
    head = bytearray(b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(57))
    struct.pack_into("<HHI", head, 16, 4, number, 1)
    return bytes(head) + bytes(8192)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (kdump(("Linux", "host", "5.10.0", "#1", "i686")), "i686"),
        (kdump(("Linux", "host", "5.10.0", "#1", "armv7l")), "armv7l"),
        (elf_header(32, 3), "i386"),
        (elf_header(64, 3), "i386"),  # kexec writes such headers
        (elf_header(32, 40), "arm"),
    ],
)
def test_a_32_bit_kernel_is_refused_for_what_it_is(
    write: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch, made: bytes, name: str
) -> None:
    monkeypatch.setattr("dmods.cli.drgn_starter.become", lambda *_words: pytest.fail("drgn was started"))
    with pytest.raises(UserError, match=rf"is the dump of a 32-bit kernel \({name}\), which dmods does not know"):
        run_command(write(made), "panicinfo", [])


@pytest.mark.parametrize("made", [kdump(), elf_header(64, 62), elf_header(64, 183), b"\x7fELF", b""])
def test_other_files_are_of_no_32_bit_machine(made: bytes) -> None:
    assert kdumps.small_machine(lambda at, count: made[at : at + count]) is None


@pytest.mark.parametrize("seed", range(40))
def test_hostile_headers_and_records_do_no_harm(tmp_path: Path, seed: int) -> None:
    """Each word of the headers may be anything: nothing is raised, and no answer is larger than the file."""
    plain = bytearray(kdump(EMPTY, part=(1, 2), notes=prstatus()))
    for at in (424, 428, 432, 436, *range(4096, 4096 + 104, 8)):
        if (seed * 7 + at // 4) % 5 == 0:
            struct.pack_into("<Q", plain, at, (1 << 64) - 1 - seed if seed % 2 else 1 << (seed + 20))
    whole = flat(bytes(plain), 500 + seed)
    broken = bytearray(whole)
    struct.pack_into(">qq", broken, 4096 + 616 * (seed % 2), (1 << 62) >> seed, 1 << (seed % 63))
    for content in (bytes(plain), whole, bytes(broken), whole[: 5000 + 97 * seed]):
        path = tmp_path / "vmcore"
        path.write_bytes(content)
        assert len(" ".join(dump_file_notes(str(path)))) < 2000
        assert len(read_cpu_notes(str(path)).cpus) <= 1
        with open(path, "rb") as file:
            read, _size = flattened.plain_reader_of(file)
            assert len(read(0, 1 << 40)) <= 64 << 20
