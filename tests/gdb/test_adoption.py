"""The literal command lines: what gdb has loaded after heapcmds.py has run, and what dmods said about it."""

from __future__ import annotations

import gzip
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.answers import HANG
from fixtures.packing import FORMS
from tests.gdb.conftest import ROOT, Gdb, gdb_environment, waiting

SHOW = ("-ex", "python print('PROGRAM', gdb.current_progspace().filename)")
STACK = ("-ex", "bt -frame-info short-location")


def own_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what dmods itself said."""
    return [line for line in done.stderr.splitlines() if line.startswith("dmods: ")]


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what dmods said, without the line about gdb's own complaint."""
    return [line for line in own_lines(done) if not line.startswith("dmods: gdb says ")]


def loaded(done: subprocess.CompletedProcess[str]) -> str:
    return next(line for line in done.stdout.splitlines() if line.startswith("PROGRAM ")).partition(" ")[2]


@pytest.fixture
def here(place: Path, core: Path) -> str:
    """Return the core's name in the folder where gdb is run."""
    shutil.copy(core, place)
    return core.name


@pytest.mark.parametrize("launcher", ["heapcmds.py", "./heapcmds.py", str(ROOT / "heapcmds.py")])
def test_a_core_alone_gets_its_program(gdb: Gdb, here: str, program: Path, launcher: str) -> None:
    done = gdb("-x", launcher, here, *SHOW, *STACK, "-ex", "print greeting")
    assert loaded(done) == str(program)
    assert "#0" in done.stdout
    assert "main" in done.stdout
    assert '"hello from the data segment"' in done.stdout
    (line,) = said(done)
    assert here in line
    assert str(program) in line


def test_gdbs_complaint_about_a_core_is_explained(gdb: Gdb, here: str) -> None:
    """gdb writes its line before it runs any script. The line after it says that it is expected."""
    lines = gdb("-x", "heapcmds.py", here, *SHOW).stderr.splitlines()
    complaint = next(number for number, line in enumerate(lines) if "not in executable format" in line)
    assert lines[complaint + 1].startswith(f"dmods: gdb says that {here} is")
    assert "expected" in lines[complaint + 1]


def test_nothing_is_explained_where_gdb_does_not_complain(gdb: Gdb, here: str, program: Path) -> None:
    for words in (["-c", here], [program, here], ["-ex", f"core-file {here}"]):
        done = gdb("-x", "heapcmds.py", *words, *SHOW)
        assert "executable format" not in done.stderr
        assert [line for line in own_lines(done) if "gdb says" in line] == []


def test_through_two_links_and_another_folder(gdb: Gdb, here: str, program: Path, place: Path) -> None:
    (place / "sub").mkdir()
    (place / "sub" / "again.py").symlink_to("../heapcmds.py")
    done = gdb("-x", "sub/again.py", here, *SHOW)
    assert loaded(done) == str(program)


@pytest.mark.quick("options0", "options3")
@pytest.mark.parametrize(
    "options",
    [
        ["-c", "CORE"],
        ["--core=CORE"],
        ["-core", "CORE"],
        ["-nx", "-q", "CORE"],
        ["--quiet", "-ex", "echo CORE is next\\n", "--", "CORE"],
        ["-ex", "info line", "--nh", "CORE"],
    ],
)
def test_every_way_of_giving_the_core(gdb: Gdb, here: str, program: Path, options: list[str]) -> None:
    done = gdb("-x", "heapcmds.py", *SHOW, *STACK, *(word.replace("CORE", here) for word in options))
    assert loaded(done) == str(program)
    assert "main" in done.stdout
    assert len(said(done)) == 1


def test_the_users_program_stays(gdb: Gdb, here: str, program: Path) -> None:
    done = gdb("-x", "heapcmds.py", program, here, *SHOW, *STACK)
    assert loaded(done) == str(program)
    assert "main" in done.stdout
    assert said(done) == []


def test_the_users_program_stays_even_if_it_is_another(gdb: Gdb, here: str) -> None:
    true = shutil.which("true")
    assert true is not None
    done = gdb("-x", "heapcmds.py", true, here, *SHOW)
    assert os.path.realpath(loaded(done)) == os.path.realpath(true)
    assert said(done) == []


def test_core_and_program_in_the_wrong_order(gdb: Gdb, here: str, program: Path) -> None:
    done = gdb("-x", "heapcmds.py", here, program, *SHOW, *STACK)
    assert loaded(done) == str(program)
    assert "main" in done.stdout


def test_a_path_with_a_space_and_a_quote(gdb: Gdb, core: Path, program: Path, place: Path) -> None:
    (place / "a b'c").mkdir()
    shutil.copy(core, place / "a b'c")
    done = gdb("-x", "heapcmds.py", f"a b'c/{core.name}", *SHOW, "-ex", "mdb maps --json")
    assert loaded(done) == str(program)
    assert '"command"' in done.stdout


def _core_of(program: Path, folder: Path) -> Path:
    with waiting(program) as pid:
        made = folder / f"core.{pid}"
        subprocess.run(
            ["gdb", "-nx", "-batch", "-p", str(pid), "-ex", f"gcore {made}"], check=True, capture_output=True
        )
    return made


def test_a_program_that_is_gone(gdb: Gdb, program: Path, place: Path) -> None:
    copy = place / "gone"
    shutil.copy(program, copy)
    core = _core_of(copy, place)
    copy.unlink()
    done = gdb("-x", "heapcmds.py", core.name, *SHOW, "-ex", "info threads", "-ex", "mdb maps --json")
    assert loaded(done) == "None"
    (line,) = said(done)
    assert str(copy) in line
    assert "* 1" in done.stdout  # the core is loaded all the same
    assert '"command"' in done.stdout


def test_a_program_that_is_another_by_now(gdb: Gdb, program: Path, place: Path) -> None:
    copy = place / "rebuilt"
    shutil.copy(program, copy)
    core = _core_of(copy, place)
    copy.unlink()
    (place / "other.c").write_text("int main(void) { return 1; }")
    subprocess.run(["gcc", "-o", copy, place / "other.c"], check=True)
    done = gdb("-x", "heapcmds.py", core.name, *SHOW, "-ex", "info threads", "-ex", "mdb maps --json")
    assert loaded(done) == "None"
    (line,) = said(done)
    assert "build-id" in line
    assert "* 1" in done.stdout
    assert '"command"' in done.stdout


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"just text\n" * 100, "not a core"),
        (b"", "empty"),
        (gzip.compress(b"\x7fELF" + bytes(1000), mtime=0), "what is in it is no dump"),
        (b"\x7fELF", "header"),
    ],
)
def test_what_is_no_core(gdb: Gdb, place: Path, content: bytes, word: str) -> None:
    (place / "core.1603").write_bytes(content)
    done = gdb("-x", "heapcmds.py", "core.1603", *SHOW, "-ex", "print 40 + 2")
    assert loaded(done) == "None"
    lines = said(done)
    assert len(lines) == 2
    assert word in "".join(lines)
    assert "Traceback" not in done.stderr
    assert "= 42" in done.stdout


def test_a_compressed_core(gdb: Gdb, place: Path, core: Path, program: Path, tmp_path: Path) -> None:
    (place / "core.zst").write_bytes(FORMS["zstd"](core.read_bytes()))
    done = gdb("-x", "heapcmds.py", "core.zst", *SHOW, *STACK, "-ex", "findleaks", XDG_CACHE_HOME=str(tmp_path / "c"))
    plain = gdb("-x", "heapcmds.py", core, *SHOW, *STACK, "-ex", "findleaks")
    assert loaded(done) == str(program)
    assert done.stdout == plain.stdout
    assert "its plain copy is" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_core_that_is_not_there(gdb: Gdb) -> None:
    done = gdb("-x", "heapcmds.py", "core.404", *SHOW)
    assert "No such file" in done.stderr
    assert said(done) == []


def test_without_any_core(gdb: Gdb) -> None:
    done = gdb("-x", "heapcmds.py", "-ex", "mdb maps")
    assert "neither a core nor a process" in done.stderr
    assert "Traceback" not in done.stderr


def test_sourced_thrice_it_adopts_once(gdb: Gdb, here: str, program: Path) -> None:
    done = gdb(
        "-x", "heapcmds.py", "-x", "heapcmds.py", here, "-ex", "source heapcmds.py", *SHOW, "-ex", "mdb maps --json"
    )
    assert loaded(done) == str(program)
    assert len(said(done)) == 1
    assert '"command"' in done.stdout


def test_sourced_by_a_command(gdb: Gdb, here: str, program: Path) -> None:
    done = gdb(here, "-ex", "source heapcmds.py", *SHOW)
    assert loaded(done) == str(program)
    assert len(said(done)) == 1


def test_from_the_users_init_file(gdb: Gdb, here: str, program: Path, tmp_path: Path) -> None:
    """When gdb reads its init file, it has not looked at its files yet. So the first command adopts."""
    (tmp_path / ".gdbinit").write_text(f"source {ROOT / 'heapcmds.py'}\n")
    done = gdb(here, "-ex", "mdb maps --json", *SHOW, *STACK)
    assert done.returncode == 0
    assert '"command"' in done.stdout
    assert loaded(done) == str(program)
    assert "main" in done.stdout


def test_gdb_ends_before_anybody_asks(gdb: Gdb, here: str) -> None:
    """gdb 13 crashes at its end where an event is left that it has not run."""
    assert gdb("-ix", "heapcmds.py", here, "-ex", "quit 7").returncode == 7


def test_sourced_by_another_script(gdb: Gdb, here: str, program: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"import gdb\ngdb.execute('source {ROOT / 'heapcmds.py'}')\n")
    done = gdb(here, "-x", str(tmp_path / "mine.py"), "-ex", "mdb maps --json", *SHOW)
    assert '"command"' in done.stdout
    assert loaded(done) == str(program)


def test_a_core_loaded_later(gdb: Gdb, here: str, program: Path) -> None:
    done = gdb("-x", "heapcmds.py", "-ex", f"core-file {here}", "-ex", "mdb maps --json", *SHOW)
    assert '"command"' in done.stdout
    assert loaded(done) == str(program)


def test_without_debug_files(gdb: Gdb, here: str, program: Path) -> None:
    done = gdb(
        "-iex", "set debug-file-directory /nonexistent", "-x", "heapcmds.py", here, *SHOW, "-ex", "mdb maps --json"
    )
    assert loaded(done) == str(program)
    assert '"command"' in done.stdout


def test_a_sysroot_is_where_the_program_is_looked_for(gdb: Gdb, here: str, program: Path, place: Path) -> None:
    done = gdb("-iex", f"set sysroot {place}", "-x", "heapcmds.py", here, *SHOW)
    assert loaded(done) == "None"
    under = place / str(program).lstrip("/")
    under.parent.mkdir(parents=True)
    shutil.copy(program, under)
    done = gdb("-iex", f"set sysroot {place}", "-x", "heapcmds.py", here, *SHOW)
    assert loaded(done) == str(under)


@pytest.mark.parametrize("batch", [False, True])
def test_only_a_batch_changes_how_pythons_garbage_is_collected(
    here: str, place: Path, tmp_path: Path, batch: bool
) -> None:
    """gdb's Python is the user's own: scripts of theirs may run in it for days."""
    shown = ("-ex", "python import gc; print('COLLECTS', gc.get_threshold())")
    words = ["gdb", *["-batch"] * batch, *shown, "-x", "heapcmds.py", here, *shown, "-ex", "quit"]
    done = subprocess.run(
        words, cwd=place, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, timeout=HANG,
        env=gdb_environment(tmp_path),
    )  # fmt: skip
    before, after = (line for line in done.stdout.splitlines() if line.startswith("COLLECTS "))
    assert (before != after) == batch


def test_an_unset_up_pack_says_what_to_run(here: str, gdb: Gdb, place: Path) -> None:
    """scripts/setup was never run in the clone: no engine, no .venv."""
    clone = place / "clone"
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    for package in ("dmods", "gdbext", "drgnext"):
        shutil.copytree(ROOT / package, clone / package, ignore=ignore)
    done = gdb("-x", "clone/gdbext/heapcmds.py", here, "-ex", "mdb maps", "-ex", "print 40 + 2")
    assert "scripts/setup" in done.stderr
    assert "Traceback" not in done.stderr
    assert "= 42" in done.stdout


def test_installed_by_pip(here: str, gdb: Gdb, place: Path, program: Path) -> None:
    """In site-packages all packages are neighbours. `dmods gdb` takes gdb's own arguments."""
    site = place / "site-packages"
    for package in ("dmods", "gdbext", "drgnext"):
        shutil.copytree(ROOT / package, site / package)
    spec = importlib.util.find_spec("elftools")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, site / "elftools")
    done = gdb("-x", site / "gdbext" / "heapcmds.py", here, *SHOW, "-ex", "mdb maps --json")
    assert loaded(done) == str(program)
    assert '"command"' in done.stdout
    asked = subprocess.run(
        [sys.executable, "-m", "dmods", "gdb", "-batch", here, *SHOW, "-ex", "mdb maps --json"],
        cwd=place, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(site), "HOME": str(place)},
    )  # fmt: skip
    assert loaded(asked) == str(program)
    assert '"command"' in asked.stdout
