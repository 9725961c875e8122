"""The wheel on a machine that has nothing else.

pip installs it as an ordinary user, outside the checkout, on a machine of each supported Debian release.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import answers, installed, kernel, sysroot
from fixtures.cores import check_core_pattern

pytestmark = pytest.mark.thorough("it needs the wheel, and machines of other releases")

ROOT = Path(__file__).resolve().parents[1]
LEAKED = "Total       3 buffers, 3096 bytes"  # fixtures/tutorial.c: three of 1024, which malloc rounds up to 1032
# The program says when it is ready, and then sleeps until it is killed.
CRASH = """crash() {
    coproc "${@:2}"
    read -r _ <&"${COPROC[0]}"
    until [[ $(</proc/$COPROC_PID/stat) == *') S '* ]]; do sleep 0.05; done
    kill -ABRT $COPROC_PID
    wait $COPROC_PID
    mv core* $1
}"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the leak tutorial's program, built for the oldest of the releases and so for all."""
    made = tmp_path_factory.mktemp("program") / "tutorial"
    source = ROOT / "fixtures" / "tutorial.c"
    subprocess.run(["gcc", *sysroot.flags(), "-g", "-O1", "-o", made, source], check=True)
    return made


@pytest.fixture(scope="module", params=installed.PYTHONS)
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, program: Path
) -> Iterator[installed.Machine]:
    """Return a machine with the wheel in ~/env, two cores of the tutorial, and a kernel's dump.

    core.1604 is of a program that `dmods run` started.
    """
    check_core_pattern()
    release: str = request.param
    guest = kernel.guest("6.1", crash="null")
    home = tmp_path_factory.mktemp("home") / "you"
    # The files lie as kdump-tools and the kernel's debug package place them.
    mounts = [(guest.directory, "/var/crash"), (guest.vmlinux.parent, "/usr/lib/debug")]
    mounts.append((installed.needs(release), "/mnt"))
    one = installed.machine(release, home, mounts)
    shutil.copy(program, home)
    shutil.copy(installed.wheel(), home)
    done = one.run(
        "python3 -m venv env && env/bin/pip --disable-pip-version-check install -q --no-index --find-links /mnt "
        '"$(echo dmods-*.whl)[drgn]" && rm dmods-*.whl && ulimit -c unlimited || exit; '
        f"{CRASH}\ncrash kept.1603 ./tutorial; crash kept.1604 env/bin/dmods run -- ./tutorial; "
        "for number in 1603 1604; do mv kept.$number core.$number; done"
    )
    assert (home / "core.1604").exists(), done.stdout + done.stderr
    yield one
    shutil.rmtree(home)


def answer(machine: installed.Machine, command: str) -> str:
    done = machine.run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_all_is_well_says_the_doctor(machine: installed.Machine, request: pytest.FixtureRequest) -> None:
    said: dict[str, Any] = json.loads(answer(machine, "env/bin/dmods doctor core.1603 --json"))
    found = {row["what"]: (row["found"], row["help"]) for row in said["tables"][0]["rows"]}
    version = installed.PYTHONS[request.node.callspec.params["machine"]]
    for what in ("gdb's own Python", "drgn's own Python"):
        assert found[what][0].startswith(f"{version}.")
        assert found[what][0].endswith("loads the engine")
    helped = {what for what, (_found, help) in found.items() if help}
    assert helped <= {"core size limit", "running processes", "records"}, found
    assert found["program"][0] == f"{installed.HOME}/tutorial"
    assert "SIGABRT" in found["core"][0]


@pytest.mark.parametrize(
    "command",
    [
        "env/bin/dmods findleaks core.1603",
        "env/bin/dmods gdb -batch core.1603 -ex findleaks",
        "mkdir place; env/bin/dmods link place && cd place && gdb -batch -x heapcmds.py ../core.1603 -ex findleaks",
        "mkdir place; env/bin/dmods link place && cd place && ../env/bin/drgn -q -c ../core.1603 findleaks",
        "echo findleaks > script && . env/bin/activate && dmods gdb -batch ./tutorial core.1603 -x script",
    ],
)
def test_it_finds_the_leaks(machine: installed.Machine, command: str) -> None:
    assert LEAKED in answer(machine, command)


def test_the_auditor_in_the_wheel_tells_who_allocated(machine: installed.Machine) -> None:
    found = json.loads(answer(machine, "env/bin/dmods findleaks core.1604 --json"))
    callers = {row["caller"].partition("+")[0] for row in found["tables"][0]["rows"]}
    assert callers == {"main", "func_leak", "buf_create"}


def test_the_man_page_is_installed(machine: installed.Machine) -> None:
    """`man dmods` finds the page beside env/bin, which activating the environment puts on PATH (manpath(1))."""
    assert answer(machine, "cat env/share/man/man1/dmods.1") == (ROOT / "docs" / "dmods.1").read_text()


def test_a_kernels_dump(machine: installed.Machine) -> None:
    answer(machine, "mkdir -p kernels && env/bin/dmods link kernels")
    typed = answer(machine, "cd kernels && ../env/bin/drgn -q -c /var/crash/vmcore memstat")
    assert typed.startswith("Page Summary")
    pages = [int(line.rsplit(maxsplit=3)[1]) for line in typed.splitlines() if line.endswith("%")]
    total = re.search(r"^Total +(\d+)", typed, re.MULTILINE)
    assert total is not None
    assert sum(pages) == int(total[1]) > 60_000
    assert answer(machine, "env/bin/dmods memstat /var/crash/vmcore") == typed


def test_the_wheel_runs_where_it_says(tmp_path: Path) -> None:
    """The C library's symbol versions of all native code agree with the tag that pip goes by."""
    wheel = installed.wheel()
    tag = re.fullmatch(r"dmods-[\d.]+-cp39-abi3-manylinux_2_(\d+)_x86_64\.whl", wheel.name)
    assert tag is not None, wheel.name
    assert int(tag[1]) <= 31
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        native = [name for name in names if name.endswith(".so")]
        assert sorted(native) == ["dmods/_engine.abi3.so", "dmods/libdmods_audit.so"]
        for name in native:
            assert needed_glibc(Path(archive.extract(name, tmp_path))) <= int(tag[1])
    folders = {name.partition("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith((".dist-info", ".data"))} == {
        "dmods",
        "gdbext",
        "drgnext",
    }


def test_a_second_wheel_compiles_nothing(tmp_path: Path) -> None:
    said = []
    for name in ("first", "second"):
        done = answers.finished(ROOT / "scripts" / "wheel", tmp_path / name, timeout=1400)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(list((tmp_path / name).glob("*.whl"))) == 1
        said.append(done.stderr)
    assert "Finished" in said[1]  # cargo says what it does
    assert "Compiling" not in said[1]


def needed_glibc(library: Path) -> int:
    """Return the minor number of the newest glibc 2.x that the library asks for."""
    said = subprocess.run(["readelf", "-VW", library], capture_output=True, text=True, check=True).stdout
    return max(int(found) for found in re.findall(r"Name: GLIBC_2\.(\d+)", said))
