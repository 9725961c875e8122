"""The command line from outside: exit status, errors of two lines, pipes, interrupts."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures import answers
from fixtures.answers import dmods
from fixtures.limits import HANG
from tests.corekit import Crash

ROOT = Path(__file__).resolve().parents[2]


def test_an_overview_and_help() -> None:
    for words in ((), ("--help",), ("-h",), ("help",)):
        done = dmods(*words)
        assert done.returncode == 0
        assert done.stdout.startswith("usage: dmods NAME core [args]")
        assert "\n  maps " in done.stdout
    for words in (("help", "maps"), ("maps", "--help"), ("maps", "-h")):
        done = dmods(*words)
        assert done.returncode == 0
        assert done.stdout.startswith("usage: dmods maps ")
        assert "--sysroot DIR" in done.stdout


def test_the_version_is_the_projects() -> None:
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    version = found[1]
    assert dmods("--version").stdout == f"dmods {version}\n"


@pytest.mark.parametrize(
    ("words", "status", "what"),
    [
        (("nonesuch", "core"), 2, "no command 'nonesuch'"),
        (("maps",), 2, "core is missing"),
        (("maps", "/bin/true", "--nonesuch"), 2, "--nonesuch"),
        (("--nonesuch",), 2, "the command comes first"),
        (("/bin/true", "maps"), 2, "the command comes first"),
        (("help", "nonesuch"), 2, "no command"),
        (("maps", "/bin/true"), 1, "not a core"),
        (("maps", "/nonexistent"), 1, "cannot open"),
        (("panicinfo", "/nonexistent/vmcore", "-s", "vmlinux"), 1, "cannot open /nonexistent/vmcore: No such file"),
        (("findleak", "core"), 2, "no command 'findleak'"),
        (("maps", "/bin/true", "more"), 2, "unrecognized arguments: more"),
        (("findleaks", "/bin/true", "--top", "0"), 2, "0 is not a count"),
        (("memstat", "/bin/true"), 1, "not a core"),
        (("link",), 2, "which folder"),
        (("link", "/dev/null/x"), 1, "does not exist"),
        (("link", "/dev/null"), 1, "is not a folder"),
        (("gdb", "nope.core"), 1, "no file nope.core"),
        (("gdb", "/bin/true", "nope.core"), 1, "no file nope.core"),
        (("gdb", "-c", "nope.core"), 1, "no file nope.core"),
        (("gdb", "/etc/passwd"), 1, "not a core"),
        (("gdb", "-c", "/bin/true"), 1, "not a core"),
        (("mdb",), 2, "CORE is missing"),
        (("mdb", "/nonexistent", "::maps"), 1, "cannot open"),
        (("run", "/etc/passwd"), 1, "not a program"),
        (("maps", "/bin/true", "--sysroot", "/nonexistent"), 1, "not a folder"),
    ],
)
def test_what_the_user_must_mend_is_two_lines(words: tuple[str, ...], status: int, what: str) -> None:
    done = dmods(*words)
    assert done.returncode == status
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 2, done.stderr
    assert what in done.stderr.splitlines()[0]
    assert done.stderr.startswith("dmods: ")


@pytest.mark.parametrize(
    ("words", "command", "target", "status"),
    [
        (("maps", "/nonexistent"), "maps", "/nonexistent", 1),
        (("maps", "/bin/true"), "maps", "/bin/true", 1),
        (("nonesuch", "core"), "nonesuch", None, 2),
        (("whatis",), "whatis", None, 2),
        (("memstat", "/bin/true"), "memstat", "/bin/true", 1),
    ],
)
def test_an_error_is_json_too(words: tuple[str, ...], command: str, target: str, status: int) -> None:
    plain, done = dmods(*words), dmods(*words, "--json")
    assert (done.returncode, done.stderr) == (status, plain.stderr)
    answer = json.loads(done.stdout)
    what, how = (line.strip() for line in done.stderr.splitlines())
    error = {"what": what.partition("dmods: ")[2], "how": how}
    assert answer == {"version": 1, "command": command, "target": target, "error": error, "status": status}


def test_options_before_and_after(crashed: Crash, tmp_path: Path) -> None:
    core = str(crashed.core)
    plain = dmods("maps", core, "--json").stdout
    assert json.loads(plain)["target"] == core
    for words in (
        ("--exe", str(crashed.program), "maps", core, "--json"),
        (f"--exe={crashed.program}", "maps", "--json", core),
        ("maps", core, "--exe", str(crashed.program), "--json"),
        ("maps", "--json", "--exe", str(crashed.program), core),
    ):
        assert dmods(*words).stdout == plain
    elsewhere = dmods("--sysroot", str(tmp_path), "maps", core)
    assert elsewhere.returncode == 0
    assert "note: " in elsewhere.stderr
    assert "not on this machine" in elsewhere.stderr


def test_a_reader_that_has_seen_enough(crashed: Crash) -> None:
    line = f"{shlex.quote(sys.executable)} -m dmods maps -v {crashed.core}; echo status $? >&2"
    done = subprocess.run(["sh", "-c", f"( {line} ) | true"], check=False, capture_output=True, text=True, timeout=HANG)
    assert done.stderr == "status 0\n"


def test_ctrl_c() -> None:
    """dmods is interrupted while it reads its core. Here, a function that never returns stands for reading."""
    script = (
        "import signal, sys, time\nfrom dmods import __main__ as m\n"
        # A shell that runs the suite in the background makes it ignore SIGINT. Children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def slow(args):\n    print('ready', flush=True)\n"
        # A signal between two instructions does not end the sleep that comes next.
        "    while True:\n        time.sleep(0.01)\n"
        "m._target = slow\nsys.exit(m.main(['maps', 'core']))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=HANG)
    assert err == b"interrupted\n"
    assert process.returncode == 130


def test_a_terminal_gets_bold_headings_and_no_colour_is_obeyed(crashed: Crash) -> None:
    for environment, bold in (({}, True), ({"NO_COLOR": "1"}, False)):
        master, slave = pty.openpty()
        subprocess.run(
            [sys.executable, "-m", "dmods", "maps", str(crashed.core)],
            check=True, stdout=slave, env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **environment},
        )  # fmt: skip
        os.close(slave)
        shown = os.read(master, 4096)
        os.close(master)
        assert (b"\x1b[1m" in shown) == bold


def test_a_name_the_encoding_lacks_is_escaped(crashed: Crash) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    exotic = crashed.where / "cœur"
    exotic.symlink_to(crashed.core)
    done = dmods("maps", str(exotic), "--json", env=environment)
    assert done.returncode == 0
    missing = dmods("maps", str(exotic) + "é", env=environment)
    assert missing.returncode == 1
    assert "\\xe9" in missing.stderr


@pytest.mark.parametrize("name", ["maps", "findleaks"])
def test_a_command_imports_little(crashed: Crash, name: str) -> None:
    """Imports are most of a short command's time. These are slow ones that only other commands need."""
    code = (
        "import sys; from dmods.__main__ import main\n"
        f"try: main(['{name}', {str(crashed.core)!r}])\n"
        "except SystemExit: pass\n"
        "print('MODULES', *sys.modules)"
    )
    done = answers.finished(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.rpartition("MODULES")[2].split())
    assert "dmods.commands" in loaded
    assert not loaded & {"dataclasses", "inspect", "jinja2", "drgn", "elftools.dwarf", "sqlite3", "asyncio", "http"}
    assert not loaded & {
        "hashlib",
        "tarfile",
        "shutil",
        "platform",
        "subprocess",
        "tempfile",
        "pathlib",
        "urllib.parse",
    }
    rooms = ("triage", "profile", "machine", "corefile.images", "corefile.live", "cli.run", "output.json")
    assert [one for one in loaded if one.startswith(tuple(f"dmods.{room}" for room in rooms))] == []
    # Of the graph, findleaks needs the types of what leaked: no named roots, owners or growth.
    parts = {one.split(".")[2] for one in loaded if one.startswith("dmods.graph.")}
    assert parts == ({"types"} if name == "findleaks" else set())
    # The process has glibc's malloc, and no other allocator or runtime.
    assert {one for one in loaded if re.fullmatch(r"dmods\.allocators\.\w+\.(heap|profile|samples)", one)} == {
        "dmods.allocators.glibc.heap"
    }
    assert [one for one in loaded if re.match(r"dmods\.runtimes\.(golang|python\.(?!find))", one)] == []


def test_a_word_misspelt_and_a_process_for_a_core(crashed: Crash) -> None:
    """The second line says what to do."""

    def how(*words: str) -> str:
        return dmods(*words).stderr.splitlines()[1]

    assert "did you mean findleaks?" in how("findleak", str(crashed.core))
    assert f"gcore {os.getpid()}" in how("findleaks", str(os.getpid()))
    assert f"dmods findleaks {crashed.core}" in how(str(crashed.core))
    assert "--exe" in how("findleaks", str(crashed.core), str(crashed.program))
    assert "findleaks" in how("memstat", str(crashed.core))


def test_every_name_of_the_shell_has_help() -> None:
    for name in ("run", "link", "gdb", "drgn", "mdb"):
        done = dmods("help", name)
        assert done.returncode == 0
        assert f"dmods {name} " in done.stdout
        assert "%%" not in done.stdout  # only argparse's own texts double the sign
        assert ("%p" in done.stdout) == (name == "run")


def test_the_list_of_commands_by_its_option() -> None:
    assert dmods("-l").stdout == dmods("dmods", "-l").stdout
