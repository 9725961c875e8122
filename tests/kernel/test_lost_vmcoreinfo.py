"""Dumps of machines without a note of VMCOREINFO: QEMU's of a guest that did not say where it is, and dumps cut short.

They are the quick tests' own dumps, without the note. The same dump with its note is the witness.
"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.kernel_dumps import find_vmcoreinfo, is_machines, lacks_vmcoreinfo
from dmods.modules import elf
from fixtures import answers, kernel
from tests.corekit import Crash, Memory, elf64_core, note, prstatus64
from tests.kernel.test_vmcoreinfo import vmcoreinfo


def text_of(dump: Path) -> bytes:
    """Return the text of the dump's own note."""
    return next(data for name, _kind, data in elf.read_notes(vmcoreinfo(dump), True) if name == b"VMCOREINFO")


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return QEMU's dump without its note, as libvirt makes it of a guest without that device."""
    whole = kernel.guest("6.1", "null").vmcore
    copy = tmp_path_factory.mktemp("lost") / "vmcore"
    subprocess.run(["cp", "--sparse=always", str(whole), str(copy)], check=True)
    notes = list(elf.read_notes(vmcoreinfo(whole), True))
    kept = b"".join(note(kind, data, name) for name, kind, data in notes if name != b"VMCOREINFO")
    with copy.open("r+b") as file:
        file.seek(32)
        (table,) = struct.unpack("<Q", file.read(8))
        file.seek(table)
        kind, _flags, at = struct.unpack("<IIQ", file.read(16))
        assert kind == elf.PT_NOTE
        file.seek(table + 32)
        file.write(struct.pack("<QQ", len(kept), len(kept)))
        file.seek(at)
        file.write(kept + bytes(len(vmcoreinfo(whole)) - len(kept)))
    return copy


def test_the_text_is_found_in_the_guests_memory(without: Path) -> None:
    assert lacks_vmcoreinfo(str(without))
    found = find_vmcoreinfo(str(without))
    assert found is not None
    assert found.rstrip(b"\0") == text_of(kernel.guest("6.1", "null").vmcore).rstrip(b"\0")


@pytest.mark.quick("panicinfo")
@pytest.mark.parametrize("name", ["panicinfo", "memstat"])
def test_the_answers_are_those_of_the_dump_with_the_note(name: str, without: Path) -> None:
    guest = kernel.guest("6.1", "null")
    said = [answers.typed(name, dump, "-s", guest.vmlinux) for dump in (without, guest.vmcore)]
    assert said[0]["tables"] == said[1]["tables"]


def test_dmods_drgn_opens_it(without: Path) -> None:
    for words in (("-q", "-c", without), (without,)):
        done = answers.dmods("drgn", *words, "panicinfo")
        assert "BUG: kernel NULL pointer dereference" in done.stdout, done.stderr


def test_a_text_that_another_kernel_left_is_not_used(without: Path, tmp_path: Path) -> None:
    """A guest's memory may hold such a note that is not its own: of a kernel before, or of a file."""
    copy = tmp_path / "vmcore"
    subprocess.run(["cp", "--sparse=always", str(without), str(copy)], check=True)
    true = text_of(kernel.guest("6.1", "null").vmcore)
    false = true.replace(b"NUMBER(phys_base)=-", b"NUMBER(phys_base)=+", 1).replace(b"=+", b"=", 1)
    lie = true.replace(b"OSRELEASE=6.1", b"OSRELEASE=5.1", 1)
    with copy.open("r+b") as file:
        for place, each in ((0x8000, false), (0xA000, lie)):
            file.seek(0x1480 + place)
            file.write(note(0, each, b"VMCOREINFO"))
    found = find_vmcoreinfo(str(copy))
    assert found is not None
    assert found.rstrip(b"\0") == true.rstrip(b"\0")


def test_a_process_command_says_that_it_is_a_kernels(without: Path) -> None:
    done = answers.dmods("maps", without)
    assert done.returncode == 1
    assert "is a kernel dump" in done.stderr


@pytest.mark.quick("4096-kdump", "700-qemu")
@pytest.mark.parametrize("dump", ["qemu", "kexec", "kdump"])
@pytest.mark.parametrize("kept", [4096, 700])
def test_a_dump_cut_to_its_first_page(dump: str, kept: int, tmp_path: Path) -> None:
    guest = kernel.guest("6.1", "null", dump="qemu" if dump == "qemu" else "kexec")
    whole = guest.dumped("-z", "-d", "31") if dump == "kdump" else guest.vmcore
    first = tmp_path / "vmcore"
    with whole.open("rb") as file:
        first.write_bytes(file.read(kept))
    for name in ("panicinfo", "memstat", "triage"):
        done = answers.dmods(name, first)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "is a kernel dump that is cut inside its headers" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 2


def test_a_dump_that_ends_before_the_text(without: Path, tmp_path: Path) -> None:
    first = tmp_path / "vmcore"
    with without.open("rb") as file:
        first.write_bytes(file.read(1 << 20))
    done = answers.dmods("panicinfo", first)
    assert done.returncode == 1
    assert "VMCOREINFO neither in a note nor in its memory" in done.stderr


def test_the_core_of_a_process_is_one(crashed: Crash, tmp_path: Path) -> None:
    assert not lacks_vmcoreinfo(str(crashed.core))
    cut = tmp_path / "core"
    with crashed.core.open("rb") as file:
        cut.write_bytes(file.read(4096))
    assert not lacks_vmcoreinfo(str(cut))
    assert answers.dmods("panicinfo", cut).returncode == 0


def test_physical_addresses_are_a_machines(tmp_path: Path) -> None:
    """QEMU's notes for arm64 look like those of a process."""
    path = tmp_path / "vmcore"
    data = bytearray(elf64_core([Memory(0, bytes(4096))], note(1, prstatus64(1, [0] * 34)), 183))
    path.write_bytes(data)
    assert not lacks_vmcoreinfo(str(path))
    struct.pack_into("<Q", data, 64 + 56 + 24, 0x40000000)
    path.write_bytes(data)
    assert lacks_vmcoreinfo(str(path))
    assert "is the dump of a machine" in answers.dmods("panicinfo", path).stderr
    struct.pack_into("<IIQQ", data, 64 + 56, elf.PT_LOAD, 0, 64 + 112, 0x40000000)  # of the virtual address, too
    path.write_bytes(data)
    assert lacks_vmcoreinfo(str(path))
    # A tool may write the virtual address there for a process.
    same = elf.Segment(elf.PT_LOAD, 6, 0, 0x400000, 0x400000, 1, 1, 1)
    assert not is_machines([same], ())
    assert not is_machines([same._replace(paddr=1)], (6,))


def test_what_is_no_file() -> None:
    assert find_vmcoreinfo(os.devnull) is None
    assert not lacks_vmcoreinfo("/nonexistent")
