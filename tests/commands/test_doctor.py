"""The doctor's findings, compared with what the tools say of themselves and what readelf says of a core."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Optional

from fixtures import answers
from tests.corekit import Crash, crash

ROOT = Path(__file__).resolve().parents[2]


def doctor(*words: object, cwd: Path = ROOT, env: Optional[dict[str, str]] = None) -> list[tuple[str, str, str]]:
    done = answers.dmods("doctor", *words, "--json", cwd=cwd, env=env)
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
    assert found["cores go to"][0].startswith(Path("/proc/sys/kernel/core_pattern").read_text().strip())
    assert found["auditor"][1] is None
    assert str(ROOT / "gdbext" / "heapcmds.py") in found["in gdb"][0]


def test_what_is_not_there(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for package in ("dmods", "drgnext"):
        shutil.copytree(ROOT / package, clone / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (clone / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", clone / "scripts")
    found = {what: (said, help) for what, said, help in doctor(cwd=clone, env={**os.environ, "PATH": str(tmp_path)})}
    assert found["gdb"][0] == "not installed"
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


def build_id(program: Path) -> str:
    said = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    return said.partition("Build ID: ")[2].split()[0]


def test_files_and_symbols_that_a_core_lacks(tmp_path: Path) -> None:
    crashed = crash(tmp_path, "kernel")
    wanted = build_id(crashed.program)
    found = {what: (said, help) for what, said, help in doctor(crashed.core)}
    assert found["core"][0].startswith(f"{crashed.core}: x86_64, {len(crashed.threads)} threads, died of SIG")
    assert "symbols" not in found
    subprocess.run(["strip", crashed.program], check=True)
    found = {what: (said, help) for what, said, help in doctor(crashed.core)}
    assert "stripped" in found["symbols"][0]
    assert f".build-id/{wanted[:2]}/{wanted[2:]}.debug" in found["symbols"][1]
    crashed.program.unlink()
    (tmp_path / "libcrash.so.1").unlink()
    rows = doctor(crashed.core)
    found = {what: (said, help) for what, said, help in rows}
    assert str(crashed.program) in found["program"][0]
    assert wanted in found["program"][1]
    assert [said.partition(":")[0] for what, said, _help in rows if what == "library"] == [
        str(tmp_path / "libcrash.so.1")
    ]


def test_a_core_that_was_cut_off(tmp_path: Path) -> None:
    crashed = crash(tmp_path, "kernel", coredump_filter=0x3F)
    os.truncate(crashed.core, crashed.core.stat().st_size - 100_000)
    advice = [help for what, _said, help in doctor(crashed.core) if what == "not in the core"]
    assert advice
    assert all("ulimit -c" in help for help in advice)


def test_in_gdb_it_is_about_what_is_loaded(tmp_path: Path, crashed: Crash) -> None:
    words = ["gdb", "-nx", "-batch", "-x", ROOT / "heapcmds.py", crashed.core, "-ex", "doctor --json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    rows = json.loads(done.stdout[done.stdout.index('{"') :])["tables"][0]["rows"]
    found = {row["what"]: row["found"] for row in rows}
    assert found["core"].startswith(f"{crashed.core}: ")
    assert found["program"] == str(crashed.program)


def test_what_a_terminal_shows(crashed: Crash) -> None:
    """Each finding has a line, and one more where there is help."""
    done = subprocess.run(
        ["bash", "-c", 'ulimit -S -c 0; exec "$@"', "-", sys.executable, "-m", "dmods", "doctor", crashed.core],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("records: "))
    assert lines[place + 1].split(maxsplit=1)[0] == "->"
    assert "dmods run" in lines[place + 1]


def left_out(core: Path) -> int:
    """Return how many bytes of writable segments are not in the file."""
    text = subprocess.run(["readelf", "-lW", core], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines() if line.strip().startswith("LOAD")]
    return sum(int(row[5], 16) - int(row[4], 16) for row in rows if "W" in row[6])


def test_a_core_that_has_all(tmp_path: Path) -> None:
    crashed = crash(tmp_path, "kernel", coredump_filter=0x3F)
    assert left_out(crashed.core) == 0
    assert ("memory", "all memory that the process could write is in the core", None) in doctor(crashed.core)
