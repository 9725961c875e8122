"""A kernel dump without vmlinux, but with files that have its symbols (System.map) or its types (BTF)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from drgnext.kernel.dump.given_files import own_files
from drgnext.kernel.dump.own_types.files import SYMBOLS, TYPES, Files, kind_of, listing, sorted_out
from drgnext.kernel.dump.own_types.proofs import NotCarried
from fixtures import answers, kernel
from fixtures.kernel import Guest
from tests.kernel.carried import btf_copy, proc_kallsyms, system_map, without_types

OTHER = "1234567890abcdef1234567890abcdef12345678"
#: Kernels that do not say where their symbols are (before 6.0), and whose table has functions only (arm64).
NEED_SYMBOLS = ["5.10", "6.1-arm64"]
PLAIN = ["memstat -v", "ps", "dmesg", "meminfo", "kmastat -v", "timers", "locks", "sockets", "findleaks", "walk task"]


def said(guest: Guest, words: str, *more: object) -> subprocess.CompletedProcess[str]:
    name, *rest = words.split()
    return answers.dmods(name, guest.vmcore, *rest, *more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own")


@pytest.mark.parametrize("words", PLAIN)
@pytest.mark.parametrize("release", NEED_SYMBOLS)
def test_a_listing_of_symbols_is_enough(release: str, words: str, folder: Path) -> None:
    """The types are in the dump, and the listing says where."""
    guest = kernel.guest(release, "null")
    listed = folder / f"System.map-{guest.release}"
    if not listed.exists():
        system_map(guest, folder)
    own, theirs = said(guest, words, "--symbols", listed), said(guest, words, "-s", guest.vmlinux)
    assert "symbols and types are of other files (see doctor)" in own.stderr
    assert own.stdout == theirs.stdout


@pytest.mark.thorough("it needs an arm64 kernel")
def test_without_a_listing_the_error_says_what_helps() -> None:
    done = said(kernel.guest("6.1-arm64", "null"), "memstat")
    assert (done.returncode, done.stdout) == (1, "")
    assert "--symbols System.map" in done.stderr


@pytest.mark.thorough("the quick run has the same of a System.map")
def test_a_copy_of_proc_kallsyms(folder: Path) -> None:
    guest = kernel.guest("6.12", "null")
    listed = proc_kallsyms(guest, folder, 0x1234_0000)  # of another boot
    own = said(guest, "memstat -v", "--symbols", listed)
    assert "symbols and types are of other files (see doctor)" in own.stderr
    assert own.stdout == said(guest, "memstat -v", "-s", guest.vmlinux).stdout


@pytest.mark.parametrize("release", ["6.1", "6.12", "sid"])
@pytest.mark.thorough("it copies a dump")
def test_a_file_of_types_stands_for_those_that_are_damaged(release: str, tmp_path: Path) -> None:
    guest = kernel.guest(release, "null")
    bare = without_types(guest.vmcore, tmp_path)
    types = btf_copy(guest, tmp_path)
    own = answers.dmods("memstat", bare, "-v", "--btf", types)
    assert "symbols and types are of other files (see doctor)" in own.stderr
    found = answers.dmods("doctor", bare, "--btf", types).stdout
    assert re.search(r"^symbols: +those that the kernel carries in the dump \(kallsyms\)$", found, re.MULTILINE)
    assert re.search(rf"^types: +{re.escape(str(types))}$", found, re.MULTILINE)
    assert own.stdout == said(guest, "memstat -v", "-s", guest.vmlinux).stdout


def with_build_id(btf: Path, build_id: str) -> Path:
    """Return an ELF file with the types and a build-id, and without DWARF."""
    plain, file = btf.with_name("plain"), btf.with_name("vmlinux-btf")
    source = btf.with_name("a.c")
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", f"-Wl,--build-id=0x{build_id}", "-o", plain, source], check=True)
    subprocess.run(["objcopy", "--add-section", f".BTF={btf}", plain, file], check=True)
    return file


def test_a_file_of_another_build_is_refused(folder: Path) -> None:
    """The dump's own symbols and types answer, and a note says which proof the file failed."""
    guest = kernel.guest("6.1", "null")
    elf = with_build_id(btf_copy(guest, folder), OTHER)
    assert kind_of(str(elf)) == TYPES
    done = said(guest, "panicinfo", "--btf", elf)
    assert done.returncode == 0
    assert f"--btf {elf} is not used: its build-id is {OTHER}, and the dump's kernel has " in done.stderr
    assert "symbols and types are the kernel's own" in done.stderr


@pytest.mark.thorough("each starts drgn")
@pytest.mark.parametrize(
    ("other", "reason"),
    [("5.10", "it is of another build"), ("6.12", "it is of another build"), ("zeros", "all its addresses are 0")],
)
def test_symbols_of_another_build_are_refused(other: str, reason: str, tmp_path: Path) -> None:
    guest = kernel.guest("6.1", "null")
    if other == "zeros":
        wrong = system_map(guest, tmp_path)
        wrong.write_text("".join(f"{'0' * 16}{line[16:]}\n" for line in wrong.read_text().splitlines()))
    else:
        wrong = system_map(kernel.guest(other, "null"), tmp_path)
    done = said(guest, "memstat", "--symbols", wrong)
    assert done.returncode == 0
    assert f"-s {wrong} is not used: " in done.stderr
    assert reason in done.stderr


@pytest.mark.thorough("it starts drgn")
@pytest.mark.parametrize("other", ["5.10", "6.1-arm64", "6.12", "sid"])
def test_types_of_another_build_are_refused(other: str, tmp_path: Path) -> None:
    """Also where the dump's own are damaged, so that only VMCOREINFO is left to compare with."""
    guest = kernel.guest("6.1", "null")
    wrong = btf_copy(kernel.guest(other, "null"), tmp_path)
    done = said(guest, "memstat", "--btf", wrong)
    assert (done.returncode, "it differs from the BTF that the dump holds" in done.stderr) == (0, True)
    bare = without_types(guest.vmcore, tmp_path)
    done = answers.dmods("memstat", bare, "--btf", wrong)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"--btf {wrong} is not used: BTF: " in done.stderr
    assert "it is of another build" in done.stderr


def test_kinds_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: tmp_path / name for name in ("map", "btf", "text")}
    files["map"].write_text("ffffffff81000000 T _text\n")
    files["btf"].write_bytes(b"\x9f\xeb\x01\x00\x18\x00\x00\x00")
    files["text"].write_text("some text\n")
    assert [kind_of(str(path)) for path in files.values()] == [SYMBOLS, TYPES, None]
    assert kind_of("/nonexistent") is None
    assert kind_of("/bin/true") is None
    names = [str(path) for path in files.values()]
    assert sorted_out(names, None) == Files(names[0], names[1])
    assert sorted_out(names, "other") == Files(names[0], "other")
    with pytest.raises(NotCarried, match="no listing"):
        listing(names[2])
    words = ["drgn", "-c", "vmcore", "launcher", "memstat", f"--symbols={names[0]}", "--btf", names[1]]
    monkeypatch.setattr("sys.orig_argv", words, raising=False)
    assert own_files() == Files(names[0], names[1])
