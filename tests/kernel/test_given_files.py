"""A file of -s that does not belong to the dump, or that is not there: the answer says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drgnext.kernel.dump import given_files
from fixtures import answers, kernel

OTHER = "1234567890abcdef1234567890abcdef12345678"


@pytest.fixture(scope="module")
def of_another_kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an ELF file with debug information and another build-id, as the vmlinux of another release has it."""
    where = tmp_path_factory.mktemp("other")
    (where / "a.c").write_text("int main(void) { return 0; }\n")
    vmlinux = where / "vmlinux-5.10.0-1-amd64"
    flags = ("-g", f"-Wl,--build-id=0x{OTHER}")
    subprocess.run(["gcc", *flags, "-o", vmlinux, where / "a.c"], check=True)
    subprocess.run(["gcc", "-g", "-c", "-o", where / "plain.ko", where / "a.c"], check=True)
    return vmlinux


def said(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    return answers.dmods(name, kernel.guest("6.1", "null", dump="kexec").vmcore, *words)


@pytest.mark.quick("form0-/etc/passwd-it is not an ELF file", "form1-/nonexistent-No such file or directory")
@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("/etc/passwd", "it is not an ELF file"),
        ("/nonexistent", "No such file or directory"),
        ("/etc", "it is a folder"),
        ("", "No such file or directory"),
    ],
)
@pytest.mark.parametrize("form", [["-s", "{}"], ["--symbols={}"]])
def test_a_file_that_cannot_be_vmlinux(file: str, reason: str, form: list[str]) -> None:
    done = said("panicinfo", *(word.format(file) for word in form))
    assert f"-s {file} is not used: " in done.stderr
    assert reason in done.stderr
    # The log needs no vmlinux.
    assert "BUG: kernel NULL pointer dereference" in done.stdout


@pytest.mark.quick("panicinfo")
@pytest.mark.parametrize("name", ["memstat", "panicinfo"])
def test_the_vmlinux_of_another_kernel(name: str, of_another_kernel: Path) -> None:
    guest = kernel.guest("6.1", "null", dump="kexec")
    dumps = subprocess.run(["readelf", "-n", guest.vmlinux], capture_output=True, text=True, check=True).stdout
    done = said(name, "-s", of_another_kernel)
    assert done.returncode == 0  # the kernel's own symbols and types stand for it
    line = next(line for line in done.stderr.splitlines() if f"-s {of_another_kernel}" in line)
    assert OTHER in line
    assert dumps.partition("Build ID: ")[2].split()[0] in line
    # Beside the right one it is told, too, and the right one is used.
    done = said(name, "-s", of_another_kernel, "-s", guest.vmlinux)
    assert done.returncode == 0
    assert f"-s {of_another_kernel} is not used: it does not match the dump" in done.stderr
    assert str(guest.vmlinux) not in done.stderr


def test_a_module_that_is_not_loaded(of_another_kernel: Path) -> None:
    guest = kernel.guest("6.1", "null", dump="kexec")
    module = of_another_kernel.with_name("plain.ko")
    done = said("memstat", "-s", guest.vmlinux, "-s", module, "-s", guest.module)
    assert f"-s {module} is not used: " in done.stderr
    assert str(guest.module) not in done.stderr


def test_the_right_files_say_nothing() -> None:
    guest = kernel.guest("6.1", "null", dump="kexec")
    words = [word for path in (guest.vmlinux, guest.vmlinux, *guest.modules) for word in ("-s", path)]
    assert "is not used" not in said("memstat", *words).stderr


def test_the_words_of_drgn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["-s", "a", "-sb", "--symbols", "c", "--symbols=d", "-c", "vmcore"]
    for start, expected in (
        (["/usr/bin/python3", "/usr/bin/drgn"], ["a", "b", "c", "d"]),
        (["/usr/bin/drgn"], ["a", "b", "c", "d"]),
        (["/usr/bin/python3", "-m", "drgn"], ["a", "b", "c", "d"]),
        (["/usr/bin/python3", "-m", "pytest", "tests/drgn"], []),
        (["/usr/bin/pytest", "-x", "tests/drgn"], []),
    ):
        monkeypatch.setattr(sys, "orig_argv", [*start, *given], raising=False)
        assert given_files.given_files() == expected
