"""gdb's own command line, parsed as gdb does."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from dmods.cli.gdb_arguments import CommandLine, parse, without_loader


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gdb", CommandLine()),
        ("gdb core.1", CommandLine(files=["core.1"])),
        ("gdb -x a.py core.1", CommandLine(files=["core.1"], steps=[("command", "a.py")])),
        ("gdb core.1 -x a.py -q -batch", CommandLine(files=["core.1"], batch=True, steps=[("command", "a.py")])),
        ("gdb --command=a.py prog core.1", CommandLine(files=["prog", "core.1"], steps=[("command", "a.py")])),
        ("gdb --comm a.py x", CommandLine(files=["x"], steps=[("command", "a.py")])),
        ("gdb -c core.1", CommandLine(core="core.1")),
        ("gdb --core=core.1", CommandLine(core="core.1")),
        ("gdb -cor core.1", CommandLine(core="core.1")),
        ("gdb -p 12", CommandLine(pid="12")),
        ("gdb --pid=12 -ex bt", CommandLine(pid="12", steps=[("eval", "bt")])),
        (
            "gdb -iex 'set x' -ix i -ex run p",
            CommandLine(["p"], steps=[("init-eval", "set x"), ("init", "i"), ("eval", "run")]),
        ),
        ("gdb --args prog core.1 -c x", CommandLine(files=["prog"], args=True)),
        ("gdb -- -c", CommandLine(files=["-c"])),
        ("gdb -d /src -D /data -tty /dev/null core.1", CommandLine(files=["core.1"])),
        ("gdb -cd /tmp -i mi core.1", CommandLine(files=["core.1"], folder="/tmp")),
        ("gdb -readnow -nx -nh core.1", CommandLine(files=["core.1"])),
        ("gdb -e prog -s syms core.1", CommandLine(files=["core.1"], executable="prog")),
        ("gdb -", CommandLine(files=["-"])),
        ("gdb -x", CommandLine(steps=[("command", "")])),
    ],
)
def test_parse(line: str, expected: CommandLine) -> None:
    assert parse(shlex.split(line)) == expected


def test_every_option_that_this_gdb_documents_is_known() -> None:
    """`gdb --help` is the oracle: an option shown with a value must take one here, and no other option may."""
    gdb = shutil.which("gdb")
    assert gdb is not None
    text = subprocess.run([gdb, "--help"], capture_output=True, text=True, check=True).stdout
    checked = 0
    for line in text.splitlines():
        words = line[2:].split("  ")[0].replace(",", " ").split() if line.startswith("  -") else []
        takes_value = any("=" in word or word.isupper() for word in words)
        for name in (word.partition("=")[0] for word in words if word.startswith("-")):
            assert parse(["gdb", name, "next"]).files == ([] if takes_value else ["next"]), line
            checked += 1
    assert checked > 20


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gdb -x a core.1", "gdb -x a core.1"),
        ("/opt/lib/ld-linux-x86-64.so.2 --library-path /opt/lib /opt/bin/gdb core.1", "/opt/bin/gdb core.1"),
        ("ld-linux.so.2 --inhibit-cache --argv0 gdb --library-path a:b gdb -c core.1", "gdb -c core.1"),
        ("/lib/ld-linux-aarch64.so.1 /opt/bin/gdb", "/opt/bin/gdb"),
        ("/lib/ld-linux-aarch64.so.1 --library-path", ""),
    ],
)
def test_a_gdb_that_a_dynamic_linker_was_told_to_run(line: str, expected: str) -> None:
    assert without_loader(shlex.split(line)) == shlex.split(expected)
