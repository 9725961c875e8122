"""What the doctor says of the tools is what they say of themselves; of a core, what readelf says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Optional

from tests.corekit import crash

ROOT = Path(__file__).resolve().parents[2]


def doctor(*words: object, cwd: Path = ROOT, env: Optional[dict[str, str]] = None) -> list[tuple[str, str, str]]:
    done = subprocess.run(
        [sys.executable, "-m", "dmods", "doctor", *map(str, words), "--json"],
        cwd=cwd, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [(row["what"], row["found"], row["help"]) for row in json.loads(done.stdout)["tables"][0]["rows"]]


def test_the_tools() -> None:
    found = {what: (said, help) for what, said, help in doctor()}
    gdb = subprocess.run(["gdb", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    assert found["gdb"] == (f"{gdb} ({shutil.which('gdb')})", None)
    ask = ["gdb", "-nx", "-batch", "-ex", "python import sys; print('%d.%d.%d' % sys.version_info[:3])"]
    version = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    assert found["gdb's own Python"] == (f"{version}, loads the engine", None)
    assert found["drgn's own Python"] == (f"{sys.version.split()[0]}, loads the engine", None)
    assert found["drgn"][0].startswith("drgn ")
    assert found["cores go to"][0] == Path("/proc/sys/kernel/core_pattern").read_text().strip()


def test_what_is_not_there(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for package in ("dmods", "drgnext"):
        shutil.copytree(ROOT / package, clone / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (clone / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", clone / "scripts")
    found = {what: (said, help) for what, said, help in doctor(cwd=clone, env={**os.environ, "PATH": str(tmp_path)})}
    assert found["gdb"][0] == "not there"
    assert "apt-get install gdb" in found["gdb"][1]
    for what in ("engine", "drgn's own Python"):
        said, help = found[what]
        assert "cannot" in said
        assert "dmods._engine" in said
        assert help == f"run {clone}/scripts/setup"


def test_memory_that_a_core_lacks(tmp_path: Path) -> None:
    crashed = crash(tmp_path, "kernel", coredump_filter=0x32)  # without private anonymous memory: core(5)
    rows = doctor(crashed.core)
    assert ("program", str(crashed.program), None) in rows
    missing = [(said, help) for what, said, help in rows if what == "not in the core"]
    assert sum(int(said.split()[0]) for said, _help in missing) == left_out(crashed.core) > 0
    assert all("coredump_filter" in help for _said, help in missing)


def left_out(core: Path) -> int:
    """Bytes of writable segments that are not in the file."""
    text = subprocess.run(["readelf", "-lW", core], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines() if line.strip().startswith("LOAD")]
    return sum(int(row[5], 16) - int(row[4], 16) for row in rows if "W" in row[6])


def test_a_core_that_has_all(tmp_path: Path) -> None:
    crashed = crash(tmp_path, "kernel", coredump_filter=0x3F)
    assert left_out(crashed.core) == 0
    assert ("memory", "all that the process could write is in the core", None) in doctor(crashed.core)
