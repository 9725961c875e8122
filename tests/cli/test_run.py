"""dmods run, from outside."""

from __future__ import annotations

import os
import resource
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dmods.cli.run import elevation
from dmods.errors import UserError
from dmods.machine.dumping import leaves_no_core
from dmods.machine.installed import AUDITOR, preloadable
from fixtures import answers
from fixtures.answers import dmods
from fixtures.cores import check_core_pattern

run = partial(dmods, "run")


def test_it_becomes_the_program() -> None:
    done = run("--", "sh", "-c", "echo $DMODS_AUDIT $LD_PRELOAD; exit 7")
    assert (done.returncode, done.stdout) == (7, f"audit {preloadable(str(AUDITOR))}\n")


@pytest.mark.parametrize("words", [["--audit", "sample=64k", "--"], ["--audit=sample=64k"]])
def test_words(words: list[str]) -> None:
    done = run(*words, "printenv", "DMODS_AUDIT")
    assert (done.returncode, done.stdout) == (0, "sample=64k\n")


def test_arguments_are_the_programs() -> None:
    assert run("--", "echo", "--audit", "x", "--", "-h").stdout == "--audit x -- -h\n"
    assert run("echo", "-n", "--", "a").stdout == "-- a"


def test_a_limit_that_leaves_no_core_is_told() -> None:
    def limited(most: int) -> str:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        return run("true", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (most, hard))).stderr

    check_core_pattern()  # the core pattern is not a pipe
    assert not leaves_no_core("|/usr/lib/systemd/systemd-coredump %P")
    assert limited(0) == "dmods: a crash will leave no core: run `ulimit -c unlimited` first, or use gcore\n"
    assert limited(1 << 20) == ""


def test_what_was_preloaded_stays(tmp_path: Path) -> None:
    done = run("printenv", "LD_PRELOAD", env={"LD_PRELOAD": "libm.so.6", "PATH": "/usr/bin:/bin"})
    assert done.stdout == f"{preloadable(str(AUDITOR))} libm.so.6\n"


def test_a_library_in_a_folder_with_a_blank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ld.so would read two paths. The link that it gets lies in a folder that only the user can write."""
    library = tmp_path / "a folder" / "lib.so"
    library.parent.mkdir()
    shutil.copy(AUDITOR, library)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    link = preloadable(str(library))
    assert Path(link).resolve() == library
    assert " " not in link
    done = answers.finished("env", f"LD_PRELOAD={link}", "DMODS_AUDIT=audit", "cat", "/proc/self/maps")
    assert (str(library) in done.stdout, done.stderr) == (True, "")
    assert preloadable(str(library)) == link
    Path(link).parent.chmod(0o777)
    with pytest.raises(UserError, match="LD_PRELOAD cannot name"):
        preloadable(str(library))
    assert preloadable("/lib/lib.so") == "/lib/lib.so"


def test_what_cannot_be() -> None:
    for words, what in (
        (["--", "no-such-program"], "there is no program no-such-program"),
        (["--audit", "audit,nonsense", "true"], "--audit does not know 'nonsense'"),
        (["--audit", "guards=3", "true"], "--audit does not know 'guards=3'"),
        ([], "there is no program to start"),
    ):
        done = run(*words)
        assert done.returncode in (1, 2)
        assert done.stderr.startswith(f"dmods: {what}\n")


def test_a_static_program_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "static"
    subprocess.run(["gcc", "-static", "-x", "c", "-o", program, "-"], input=b"int main(void) { return 0; }", check=True)
    done = run(program)
    assert done.returncode == 1
    assert done.stderr.startswith(f"dmods: {program} is statically linked")


SECURE = "#include <stdio.h>\n#include <sys/auxv.h>\nint main(void) { return (int)getauxval(AT_SECURE); }\n"
OTHER = 65534  # nobody


@pytest.fixture
def secure() -> Iterator[Path]:
    """Yield a program whose exit status is AT_SECURE, in a place where every user can start it."""
    with tempfile.TemporaryDirectory(prefix="dmods-run-") as folder:
        os.chmod(folder, 0o755)
        program = Path(folder) / "secure"
        subprocess.run(["gcc", "-x", "c", "-o", program, "-"], input=SECURE.encode(), check=True)
        yield program


def foreign_owners() -> list[tuple[int, int, int]]:
    """Return owners, groups and modes to try. Only root can give a file away."""
    own, group = os.getuid(), os.getgid()
    owners, groups = ([own, OTHER], [group, OTHER]) if own == 0 else ([own], [group])
    modes = (0o755, 0o4755, 0o2755, 0o6755, 0o2745)
    return [(owner, gid, mode) for owner in owners for gid in groups for mode in modes]


def test_a_program_that_gets_privileges_is_refused(secure: Path) -> None:
    """The kernel is the oracle: dmods refuses exactly the programs that would run with AT_SECURE."""
    seen = set()
    for owner, group, mode in foreign_owners():
        os.chown(secure, owner, group)
        os.chmod(secure, mode)
        expected = subprocess.run([secure], check=False).returncode
        done = run("--", secure)
        assert done.returncode == expected
        seen.add(expected)
        if expected:
            what = "set-uid" if mode & 0o4000 and owner == OTHER else "set-gid"
            assert done.stderr.startswith(f"dmods: {secure} is {what} ")
            assert "nothing would be recorded\n" in done.stderr
            assert len(done.stderr.splitlines()) == 2
    assert seen == ({0, 1} if os.getuid() == 0 else {0})


def test_elevation_is_what_the_kernel_makes_of_it() -> None:
    def of(mode: int, owner: int, group: int, *more: Any) -> bool:
        status = os.stat_result((mode, 0, 0, 1, owner, group, 0, 0, 0, 0))
        return elevation(status, *more) is not None

    capability = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
    inheritable = struct.pack("<5I", 0x02000000, 0, 1 << 13, 0, 0)
    assert of(0o104755, 0, 0, 1000, 1000, False, b"")
    assert not of(0o104755, 1000, 1000, 1000, 1000, False, b"")
    assert not of(0o104755, 0, 0, 1000, 1000, True, b"")  # no_new_privs
    assert of(0o102755, 1000, 5, 1000, 1000, False, b"")
    assert not of(0o102745, 1000, 5, 1000, 1000, False, b"")  # mandatory locking
    assert of(0o100755, 0, 0, 1000, 1000, False, capability)
    assert not of(0o100755, 0, 0, 0, 0, False, capability)
    assert not of(0o100755, 0, 0, 1000, 1000, False, inheritable)
    assert not of(0o100755, 0, 0, 1000, 1000, False, capability[:8])


def test_file_capabilities(secure: Path) -> None:
    """Another user executes the program with AT_SECURE."""
    capability = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)  # cap_net_raw=ep
    if os.getuid() != 0:  # only root can give capabilities
        with pytest.raises(PermissionError):
            os.setxattr(secure, "security.capability", capability)
        return
    os.setxattr(secure, "security.capability", capability)
    assert subprocess.run([secure], check=False).returncode == 0
    assert run("--", secure).returncode == 0
    assert subprocess.run([secure], check=False, user=OTHER).returncode == 1
    assert elevation(os.stat(secure), OTHER, OTHER, False, os.getxattr(secure, "security.capability"))


def test_a_script_is_what_its_interpreter_is(secure: Path) -> None:
    script = secure.with_name("script")
    script.write_text(f"#!{secure} -x\n")
    script.chmod(0o755)
    assert run("--", script).returncode == 0
    if os.getuid() == 0:
        os.chown(secure, OTHER, OTHER)
        secure.chmod(0o4755)
        assert run("--", script).stderr.startswith(f"dmods: {secure} is set-uid nobody")
    secure.unlink()
    subprocess.run(["gcc", "-static", "-x", "c", "-o", secure, "-"], input=SECURE.encode(), check=True)
    assert run("--", script).stderr.startswith(f"dmods: {secure} is statically linked")


def test_what_is_no_program_is_told_apart(tmp_path: Path) -> None:
    """Only a file that lacks the permission gets the advice to set it."""
    done = run("--", "/etc/passwd")
    assert done.returncode == 1
    assert done.stderr.startswith("dmods: /etc/passwd is not a program: it has neither an ELF header nor a #! line\n")
    assert "chmod" not in done.stderr
    script, text = tmp_path / "script", tmp_path / "text"
    script.write_text("#!/bin/sh\n")
    assert run("--", script).stderr.splitlines()[1].strip().endswith(f"chmod +x {script}")
    text.write_text("echo done\n")
    text.chmod(0o755)
    done = run("--", text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].strip().endswith(f"dmods run -- sh {text}")
