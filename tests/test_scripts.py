"""The scripts, run as a user runs them, on a machine that is set up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Optional

import pytest

from fixtures import answers

ROOT = Path(__file__).resolve().parents[1]
SETUP = ROOT / "scripts" / "setup"


def run(
    *command: object, cwd: Optional[Path] = None, env: Optional[dict[str, str]] = None
) -> subprocess.CompletedProcess[str]:
    return answers.finished(*command, cwd=cwd, env=env)


def test_a_second_setup_is_quiet_with_almost_no_environment(tmp_path: Path) -> None:
    assert run(SETUP).returncode == 0
    done = run(SETUP, cwd=tmp_path, env={"HOME": os.environ["HOME"], "PATH": os.environ["PATH"]})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_man_finds_the_page_after_setup() -> None:
    """man-db looks beside every folder of PATH, unless MANPATH says otherwise (manpath(1))."""
    assert shutil.which("man"), "apt-get install man-db"
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = run("man", "-w", "dmods", env={"HOME": os.environ["HOME"], "PATH": path})
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).resolve() == ROOT / "docs" / "dmods.1"


@pytest.fixture
def bare_machine(tmp_path: Path) -> Path:
    """Return a PATH with the basic tools, gdb, gcc and Python, and a clone that was never set up.

    The PATH has neither Rust nor apt.
    """
    tools = tmp_path / "bin"
    tools.mkdir()
    names = "bash env find sort xargs sha256sum cat readlink dirname flock mkdir sed id grep tail head mktemp rm cut"
    for name in [*names.split(), "gdb", "gcc", "readelf"]:
        found = shutil.which(name)
        assert found is not None, name
        (tools / name).symlink_to(found)
    (tools / "python3").symlink_to("/usr/bin/python3")
    clone = tmp_path / "clone"
    for name in ("scripts", "engine", "audit"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("target"))
    shutil.copy(ROOT / "pyproject.toml", clone)
    return clone


def bare(clone: Path) -> subprocess.CompletedProcess[str]:
    return run(clone / "scripts" / "setup", env={"HOME": "/nonexistent", "PATH": str(clone.parent / "bin")})


def test_without_cargo_it_says_what_to_install(bare_machine: Path) -> None:
    done = bare(bare_machine)
    least = re.search(r'^rust-version = "([^"]*)"', (ROOT / "engine" / "Cargo.toml").read_text(), re.MULTILINE)
    assert least is not None
    assert done.returncode == 1
    assert "apt-get install cargo-web" in done.stderr
    assert least[1] in done.stderr


def test_without_a_compiler_it_says_what_to_install(bare_machine: Path) -> None:
    (bare_machine.parent / "bin" / "gcc").unlink()
    done = bare(bare_machine)
    assert done.returncode == 1
    assert "apt-get install gcc" in done.stderr


def test_with_an_old_rust_it_says_so(bare_machine: Path) -> None:
    for tool in ("cargo", "rustc"):
        path = bare_machine.parent / "bin" / tool
        path.write_text(f"#!/bin/sh\necho '{tool} 1.63.0 (Debian)'\n")
        path.chmod(0o755)
    done = bare(bare_machine)
    assert done.returncode == 1
    assert "1.63.0" in done.stderr
    assert "cargo-web" in done.stderr


@pytest.mark.parametrize("form", ["absolute", "relative"])
def test_link_launchers(tmp_path: Path, form: str) -> None:
    where = "deep/er" if form == "relative" else tmp_path / "deep" / "er"
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for _ in range(2):  # a second run does no harm
        done = run(ROOT / "scripts" / "link-launchers", where, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    link = tmp_path / "deep" / "er" / "heapcmds.py"
    assert link.is_symlink()
    assert link.resolve() == (ROOT / "gdbext" / "heapcmds.py").resolve()


def test_link_launchers_leaves_the_users_file_alone(tmp_path: Path) -> None:
    (tmp_path / "heapcmds.py").write_text("mine")
    done = run(ROOT / "scripts" / "link-launchers", tmp_path)
    assert done.returncode == 1
    assert "left alone" in done.stderr
    assert (tmp_path / "heapcmds.py").read_text() == "mine"
