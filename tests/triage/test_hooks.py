"""The files in hooks/: systemd's own check of the units, and cores that arrive as the kernel and systemd give them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

import pytest

from dmods.triage.fleet.store import Dump, Store
from fixtures import _cache
from fixtures.limits import HANG
from tests.corekit import compile_c, kernel_core

ROOT = Path(__file__).resolve().parents[2]
HOOKS = ROOT / "hooks"
INSTALLED = "/usr/local/bin/dmods"
LONGEST = 127  # characters of core_pattern (CORENAME_MAX_SIZE, include/linux/coredump.h)

FAULT = """
#include <stdlib.h>
#include <string.h>
int main(void) {
    char *p = memset(malloc(100), 1, 100);
    free(p);
    free(p);
}
"""

# What the kernel's helper has: standard input, and nothing else. No output, no stderr, no environment (kernel/umh.c).
HELPER = """
#define _GNU_SOURCE
#include <unistd.h>
int main(int count, char **words) {
    char *none[] = {0};
    if (count < 2 || close_range(1, ~0U, 0) || chdir("/")) return 98;
    execve(words[1], words + 1, none);
    return 99;
}
"""
MAIN = """
import sys
sys.path.insert(0, {site!r})
from dmods.__main__ import main
sys.exit(main())
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter, with dmods for the system's Python. A user's home may be closed to others."""
    with tempfile.TemporaryDirectory(prefix="dmods-hooks-") as name:
        where = Path(name)
        site = where / "site"
        for package in ("dmods", "drgnext"):
            shutil.copytree(ROOT / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
        for package in ("elftools", "jinja2", "markupsafe"):
            found = importlib.util.find_spec(package)
            assert found is not None
            assert found.origin is not None
            shutil.copytree(Path(found.origin).parent, site / package, ignore=shutil.ignore_patterns("__pycache__"))
        (where / "dmods.py").write_text(MAIN.format(site=str(site)))
        subprocess.run(["chmod", "-R", "a+rX", name], check=True)
        yield where


@pytest.fixture
def core(tmp_path: Path) -> Path:
    (tmp_path / "fault.c").write_text(FAULT)
    return kernel_core(compile_c(tmp_path / "fault.c", tmp_path / "fault", "-w", "-O0"), tmp_path)


def python() -> str:
    """Return a Python that every user may run."""
    return shutil.which("python3", path="/usr/bin") or sys.executable


def unprivileged() -> Optional[str]:
    """Return the user that root becomes; None where the tests do not run as root."""
    return "nobody" if os.geteuid() == 0 else None


def the_dump(database: Path) -> Dump:
    store = Store(str(database), make=False)
    try:
        (one,) = store.dumps()
    finally:
        store.close()
    return one


def settings(name: str) -> dict[str, str]:
    lines = (HOOKS / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.mark.thorough("it runs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    program = tmp_path / "dmods"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    units = []
    for path in sorted(HOOKS.glob("dmods-triage.*")):
        copy = tmp_path / path.name
        copy.write_text(path.read_text().replace(INSTALLED, str(program)))
        units.append(str(copy))
    assert [os.path.basename(unit) for unit in units] == ["dmods-triage.path", "dmods-triage.service"]
    analyze = _cache.tool("systemd-analyze", "systemd")
    done = subprocess.run([analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.thorough("it takes a core")
def test_the_helper_of_core_pattern_as_the_kernel_starts_it(place: Path, core: Path) -> None:
    """The words of core_pattern. The helper has no output, no stderr and no environment."""
    pattern = settings("99-dmods-triage.conf")["kernel.core_pattern"]
    assert len(pattern) <= LONGEST
    told = {"%E": "!tmp!fault", "%P": "77", "%t": "1700000000", "%h": "web7"}
    folder = place / "kept"
    words = [told.get(word, word) for word in pattern[1:].split()]
    assert words[0] == INSTALLED
    words = [*words[1:], *(["--user", "root"] if unprivileged() is None else [])]
    words[words.index("--db") + 1] = str(folder / "triage.sqlite")
    (place / "helper.c").write_text(HELPER)
    helper = compile_c(place / "helper.c", place / "helper")
    with core.open("rb") as source:
        argv = [str(helper), python(), str(place / "dmods.py"), *words]
        done = subprocess.run(argv, stdin=source, timeout=HANG, check=False)
    assert done.returncode == 0
    one = the_dump(folder / "triage.sqlite")
    assert (one.host, one.seen, one.first) == ("web7", 1700000000.0, "double-free")
    assert Path(one.path).read_bytes() == core.read_bytes()
    if unprivileged() is not None:
        owners = {path.owner() for path in (folder, *folder.iterdir())}
        assert owners == {unprivileged()}
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.thorough("it takes a core")
@pytest.mark.skipif(unprivileged() is None, reason="only root gives itself a namespace and one capability")
@pytest.mark.parametrize("packed", [False, True])
def test_the_service_reads_cores_of_root(place: Path, core: Path, packed: bool) -> None:
    """With the user's rights and the folders that the unit says. The cores are as systemd-coredump leaves them."""
    unit = settings("dmods-triage.service")
    assert unit["AmbientCapabilities"] == unit["CapabilityBoundingSet"] == "CAP_DAC_READ_SEARCH"
    assert (unit["ProtectSystem"], unit["PrivateTmp"], unit["NoNewPrivileges"]) == ("strict", "yes", "yes")
    cores, state = place / "coredump", place / "state"
    cores.mkdir(mode=0o755)
    state.mkdir()
    shutil.chown(state, unprivileged())
    kept = shutil.copy(core, cores / "core.fault.0.77")
    if packed:
        subprocess.run([_cache.tool("gzip"), str(kept)], check=True)
    for path in cores.iterdir():
        path.chmod(0o640)
    words = unit["ExecStart"].split()[1:]
    words = [{"/var/lib/systemd/coredump": str(cores)}.get(word, word) for word in words]
    words[words.index("--db") + 1] = str(state / "triage.sqlite")
    done = _in_a_service(place, state, words)
    assert done.returncode == 0, done.stderr
    assert the_dump(state / "triage.sqlite").first == "double-free"


def _in_a_service(place: Path, state: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run dmods as ProtectSystem=strict, PrivateTmp= and the capability let it (systemd.exec(5)).

    /tmp has the test's own files, so only /var/tmp is private here.
    """
    mounts = [
        "mount -n --make-rprivate / && mount -n -o remount,bind,ro /",
        'mount -n --bind "$1" "$1" && mount -n -o remount,bind,ro "$1"',
        'mount -n --bind "$2" "$2" && mount -n -o remount,bind,rw "$2" && mount -n -t tmpfs -o mode=1777 none /var/tmp',
    ]
    only = "+dac_read_search"
    run = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--no-new-privs"]
    run += [f"--inh-caps=-all,{only}", f"--ambient-caps=-all,{only}", f"--bounding-set=-all,{only}"]
    run += ["env", "-i", python(), str(place / "dmods.py"), *words]
    argv = [_cache.tool("unshare", "util-linux"), "--mount", "sh", "-ec", "\n".join([*mounts, 'shift 2; exec "$@"'])]
    argv += ["sh", str(place), str(state), *run]
    return subprocess.run(argv, capture_output=True, text=True, timeout=HANG, check=False)
