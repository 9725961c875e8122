"""`drgn -c CORE NAME`: the literal command line, on a process's core."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dmods.command
from fixtures import answers
from fixtures.limits import HANG
from tests.corekit import Crash
from tests.drgn.conftest import DRGN, ROOT, Drgn, drgn_environment, own
from tests.output.test_next_command import next_commands


def test_as_typed_from_a_folder_with_the_launchers(drgn: Drgn, crashed: Crash) -> None:
    done = drgn("-c", crashed.core, "maps", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["target"] == str(crashed.core)
    assert found == answers.typed("maps", crashed.core)


def test_as_typed_from_the_projects_root(drgn: Drgn, crashed: Crash) -> None:
    done = drgn("-c", crashed.core, "findleaks", where=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Total" in done.stdout
    done = drgn("-c", crashed.core, "memstat", where=ROOT)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


def test_a_file_of_symbols_that_cannot_be_read_is_an_error(drgn: Drgn, crashed: Crash) -> None:
    """drgn itself only warns of it, and -q hides that."""
    done = drgn("-c", crashed.core, "-s", "nosuch", "panicinfo")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "dmods: -s nosuch: it cannot be read (No such file or directory)" in done.stderr


def link(*words: object, **environment: str) -> answers.Finished:
    return answers.dmods("link", *words, env={**os.environ, **environment})


def test_link_launchers_links_every_command_and_leaves_the_users_files_alone(tmp_path: Path) -> None:
    (tmp_path / "maps").write_text("mine")
    done = subprocess.run(
        [ROOT / "scripts" / "link-launchers", ".", "--all"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "maps is there already" in done.stderr
    assert (tmp_path / "maps").read_text() == "mine"
    for name in {*dmods.command.command_names()} - {"maps"}:
        assert (tmp_path / name).resolve() == ROOT / "drgnext" / "launcher.py"


def test_link_launchers_leaves_the_projects_own_root_as_it_is() -> None:
    before = {path.name: path.readlink() for path in ROOT.iterdir() if path.is_symlink()}
    made = {name for name in dmods.command.command_names() if name not in before and not (ROOT / name).exists()}
    try:
        subprocess.run([ROOT / "scripts" / "link-launchers", "."], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        assert {name: (ROOT / name).readlink() for name in before} == before
        assert (ROOT / "dmods" / "__init__.py").exists()
    finally:
        for name in made:
            (ROOT / name).unlink(missing_ok=True)


def test_dmods_link_is_the_same(tmp_path: Path) -> None:
    """After `pip install` there are no scripts, so `dmods link` is used. It replaces links of another dmods."""
    (tmp_path / "findleaks").symlink_to("/nonexistent/drgnext/launcher.py")
    for _ in range(2):
        done = link(tmp_path)
        assert done.returncode == 0
        assert {Path(line).name for line in done.stdout.splitlines()} == {"heapcmds.py", "memstat", "findleaks"}
    assert {path.name for path in tmp_path.iterdir()} == {"heapcmds.py", "memstat", "findleaks"}
    assert (tmp_path / "findleaks").resolve() == ROOT / "drgnext" / "launcher.py"
    assert (tmp_path / "heapcmds.py").resolve() == ROOT / "gdbext" / "heapcmds.py"


def test_link_takes_more_names(tmp_path: Path) -> None:
    assert link(tmp_path, "maps", "stacks").returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"heapcmds.py", "memstat", "findleaks", "maps", "stacks"}
    wrong = link(tmp_path, "no_such_command")
    assert wrong.returncode == 2
    assert "no_such_command" in wrong.stderr
    assert not (tmp_path / "no_such_command").is_symlink()


def test_link_makes_no_folder(tmp_path: Path) -> None:
    done = link(tmp_path / "nonexistent")
    assert done.returncode == 1
    assert "does not exist" in done.stderr
    assert not (tmp_path / "nonexistent").exists()


def test_link_says_where_drgn_is_only_to_those_who_lack_it(tmp_path: Path) -> None:
    folder = str(DRGN.parent)
    elsewhere = ":".join(path for path in os.environ["PATH"].split(":") if not Path(path, "drgn").exists())
    assert f"export PATH={folder}:$PATH" in link(tmp_path, PATH=elsewhere).stderr
    assert link(tmp_path, PATH=f"{folder}:{elsewhere}").stderr == ""


@pytest.mark.parametrize("words", [["CORE", "maps", "--json"], ["-q", "-c", "CORE", "maps", "--json"]])
def test_dmods_drgn_needs_no_links(tmp_path: Path, crashed: Crash, words: list[str]) -> None:
    typed = [str(crashed.core) if word == "CORE" else word for word in words]
    done = answers.dmods("drgn", *typed, cwd=tmp_path, env=drgn_environment(tmp_path))
    assert json.loads(done.stdout) == answers.typed("maps", crashed.core)


def test_dmods_drgn_leaves_the_users_script_alone(tmp_path: Path, crashed: Crash) -> None:
    (tmp_path / "maps").write_text("print('MINE', prog.core_dump_path)")
    words = ("drgn", "-q", "-c", crashed.core, "maps")
    done = answers.dmods(*words, cwd=tmp_path, env=drgn_environment(tmp_path))
    assert done.stdout == f"MINE {crashed.core}\n"


def test_help_and_usage(drgn: Drgn, crashed: Crash) -> None:
    done = drgn("-c", crashed.core, "whatis", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: whatis ")
    done = drgn("-c", crashed.core, "whatis")
    assert done.returncode == 2
    assert len(own(done.stderr)) == 2
    assert "ADDR is missing" in done.stderr


def test_a_status_of_the_commands_own(drgn: Drgn, crashed: Crash, core: Path) -> None:
    assert drgn("-c", core, "findleaks", "--fail-on-leak").returncode == 3
    assert drgn("-c", crashed.core, "findleaks", "--fail-on-leak").returncode == 0


def test_notes_go_to_stderr(drgn: Drgn, crashed: Crash, tmp_path: Path) -> None:
    cut = tmp_path / "core.cut"
    cut.write_bytes(crashed.core.read_bytes()[:-5000])
    done = drgn("-c", cut, "maps")
    assert done.returncode == 0
    assert "note: the core is truncated" in done.stderr
    assert "note:" not in done.stdout


def test_a_reader_that_has_seen_enough(place: Path, tmp_path: Path, crashed: Crash) -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"'{DRGN}' -q -c '{crashed.core}' walk mapping | head -n 1"],
        cwd=place, env=drgn_environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("0x")


def test_an_address_may_be_a_drgn_expression(drgn: Drgn, crashed: Crash) -> None:
    plain = drgn("-c", crashed.core, "whatis", "main")
    asked = drgn("-c", crashed.core, "whatis", 'prog["main"]')
    assert plain.returncode == asked.returncode == 0
    assert plain.stdout == asked.stdout
    wrong = drgn("-c", crashed.core, "whatis", 'prog["no_such_thing"]')
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr


def test_without_drgn_a_launcher_says_what_to_type(place: Path) -> None:
    done = subprocess.run([sys.executable, "findleaks"], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "dmods: findleaks is for drgn: drgn -c DUMP findleaks\n"


def test_files_beside_the_dump_are_not_imported(drgn: Drgn, place: Path, crashed: Crash) -> None:
    for name in ("json", "argparse", "bisect", "heapq", "elftools"):
        (place / f"{name}.py").write_text("raise SystemExit('imported what lay beside the dump')")
    done = drgn("-c", crashed.core, "maps", "--json")
    assert done.returncode == 0, done.stderr


def test_a_live_process(drgn: Drgn) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            done = drgn("-p", process.pid, "findleaks")
        finally:
            process.kill()
    assert done.returncode == 1
    assert "gcore" in done.stderr
    assert len(own(done.stderr)) == 2


def test_not_a_core(drgn: Drgn, place: Path) -> None:
    (place / "notes.txt").write_text("no core\n" * 10)
    done = drgn("-c", "notes.txt", "findleaks")
    assert done.returncode == 1
    assert "not an ELF core file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a checkout where scripts/setup was never run: no engine, no .venv."""
    where = tmp_path / "clone"
    for package in ("dmods", "drgnext"):
        shutil.copytree(ROOT / package, where / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return where


def test_an_unset_up_pack_says_what_to_run(drgn: Drgn, clone: Path, crashed: Crash) -> None:
    (clone / "findleaks").symlink_to("drgnext/launcher.py")
    # The venv knows this checkout, which would come first.
    done = drgn("-c", crashed.core, clone / "findleaks", PYTHONPATH=str(clone))
    assert done.returncode == 1
    lines = own(done.stderr)
    assert len(lines) == 2
    assert "dmods._engine" in lines[0]
    assert lines[1].strip() == f"run {clone}/scripts/setup"


def test_interrupted(place: Path, tmp_path: Path, crashed: Crash) -> None:
    """Ctrl-C interrupts a command that would take an hour."""
    slow = "import time; print('at work', flush=True); time.sleep(3600)"
    (place / "sitecustomize.py").write_text(
        "import signal, dmods.commands.maps as m\n"
        # A shell that runs the suite in the background makes it ignore SIGINT. Children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"object.__setattr__(m.COMMAND, 'run', lambda target, args: exec({slow!r}))\n"
    )
    with subprocess.Popen(
        [DRGN, "-q", "-c", crashed.core, "maps"],
        cwd=place, env={**drgn_environment(tmp_path), "PYTHONPATH": f"{place}:{ROOT}"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(signal.SIGINT)  # the command does not end by itself
        _out, err = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert err == "interrupted\n"


@pytest.mark.parametrize("folder", ["", "./"])
def test_the_next_command_is_one_of_drgns_command_line(drgn: Drgn, crashed: Crash, place: Path, folder: str) -> None:
    """It has all that stood before the name of the first one."""
    commands = next_commands(drgn("-q", "-c", crashed.core, f"{folder}triage").stdout)
    assert commands
    assert {command.rpartition("/" if folder else " ")[0] for command in commands} == {
        f"drgn -q -c {crashed.core}{' .' if folder else ''}"
    }
    environment = {**os.environ, "PATH": f"{DRGN.parent}:{os.environ['PATH']}"}
    done = answers.finished("sh", "-c", commands[0], cwd=place, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout
