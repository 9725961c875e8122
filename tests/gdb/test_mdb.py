"""mdb's language in gdb, exit statuses of `gdb -batch`, and names printed by dmods that are typed back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from fixtures import answers, audited, debuggers
from fixtures.limits import HANG
from tests.gdb.conftest import Gdb, gdb_environment, waiting

CUT = ("-ex", "echo {cut}")


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audited.tutorial(tmp_path_factory.mktemp("tutorial"))


def between(done: answers.Finished) -> list[str]:
    return done.stdout.split("{cut}")[1:]


def same(gdb: Gdb, core: Path, *pairs: tuple[str, str]) -> None:
    """Check that every pair of command lines prints the same text, and that it is not empty."""
    words = [word for pair in pairs for line in pair for word in (*CUT, "-ex", line)]
    done = gdb("-x", "heapcmds.py", core, *words)
    found = between(done)
    assert len(found) == 2 * len(pairs)
    for number, pair in enumerate(pairs):
        assert found[2 * number] == found[2 * number + 1] != "", (pair, done.stderr)


def test_lines_of_mdbs_language(gdb: Gdb, tutorial: Path) -> None:
    same(
        gdb,
        tutorial,
        ("mdb ::findleaks", "findleaks"),
        ("mdb ::findleaks -v", "findleaks -v"),
        ("mdb main::whatis", "mdb whatis main"),
        ("mdb $sp::whatis", "mdb whatis $sp"),
        ("mdb $sp + 8 ::whatis -n 1", "mdb whatis -n 1 $sp+8"),
        ("mdb ::dcmds", "dmods -l"),
        ("mdb ::walk leak | ::bufctl", "walk leak | bufctl"),
        ("mdb walk bufctl | bufctl", "mdb ::walk bufctl|::bufctl"),
        ("pipe -d @ mdb ::walk leak | ::bufctl @ tail -n 1", "pipe -d @ walk leak | bufctl @ tail -n 1"),
    )


def test_a_pipe_gives_every_record(gdb: Gdb, tutorial: Path) -> None:
    done = gdb("-x", "heapcmds.py", tutorial, *CUT, "-ex", "walk leak", *CUT, "-ex", "mdb ::walk leak | ::bufctl_audit")
    bufctls, records = between(done)
    heads = re.findall(r"^ +([0-9a-f]+) +[0-9a-f]+ +[0-9a-f]+ +\d+$", records, re.MULTILINE)
    assert [int(head, 16) for head in heads] == [int(bufctl, 16) for bufctl in bufctls.split()]
    assert len(heads) == 3
    assert "nested_leak_l3" in records


def test_the_log_through_a_pipe(gdb: Gdb) -> None:
    made = audited.take("callers", "audit,log=10000")
    walked = answers.by_name(answers.typed("walk", made.core, "log"))["log"]
    done = gdb("-x", "heapcmds.py", made.core, *CUT, "-ex", "walk log | bufctl", *CUT, "-ex", "mdb walk log | bufctl")
    plain, prefixed = between(done)
    assert plain == prefixed
    rows = [line.split()[:4] for line in plain.splitlines()[1:]]
    assert len(rows) == len(walked) > 40
    assert [(int(at, 16), int(buffer, 16), int(time, 16), int(tid)) for at, buffer, time, tid in rows] == [
        (int(row["address"], 16), int(row["buffer"], 16), row["timestamp"], row["thread"]) for row in walked
    ]


def test_wrong_lines(gdb: Gdb, tutorial: Path) -> None:
    lines = ("mdb ::nonesuch", "mdb fidleaks", "mdb ::memstat", "mdb 1::maps", "mdb", "mdb ::sysbp nonesuch")
    done = gdb("-x", "heapcmds.py", tutorial, *(word for line in lines for word in ("-ex", line)))
    for what in ("no command 'nonesuch'", "did you mean findleaks?", "drgn -c vmcore memstat", "takes no address"):
        assert what in done.stderr
    assert "mdb's memory commands" in done.stdout  # `mdb` alone is help
    assert "Unknown syscall name" in done.stderr
    assert "Traceback" not in done.stderr


def on_trixie(place: Path, home: Path) -> Gdb:
    debugger = debuggers.gdb("trixie")

    def run(*arguments: object, timeout: float = HANG, **more: str) -> answers.Finished:
        environment = {**gdb_environment(home), **debugger.env, **more}
        return answers.finished(*debugger.argv, "-batch", *arguments, cwd=place, env=environment, timeout=timeout)

    return run


@pytest.mark.parametrize("release", ["host", "trixie"])
def test_gdb_batch_exits_with_the_status(gdb: Gdb, core: Path, place: Path, tmp_path: Path, release: str) -> None:
    run = gdb if release == "host" else on_trixie(place, tmp_path)

    def status(*lines: str, file: object = core) -> int:
        words = [word for line in lines for word in ("-ex", line)]
        return run("-x", "heapcmds.py", file, *words).returncode

    assert status("findleaks") == 0
    assert status("findleaks --fail-on-leak") == 3
    assert status("findleaks --fail-on-leak", "maps") == 3
    assert status("maps --nonsense", "findleaks --fail-on-leak") == 2, "the first that is not 0"
    assert status("bufctl 0x10", "maps") == 1
    assert status("findleaks --fail-on-leak", "quit 7") == 7, "the user's own"
    assert status("findleaks --fail-on-leak", file="/bin/true") == 1


def test_an_interactive_gdb_keeps_its_own_status(core: Path, place: Path, tmp_path: Path) -> None:
    typed = "findleaks --fail-on-leak\nprint $mdb_status\nquit\n"
    words = ("gdb", "-q", "-x", "heapcmds.py", core)
    done = answers.finished(*words, cwd=place, env=gdb_environment(tmp_path), stdin=None, input=typed)
    assert "= 3" in done.stdout
    assert done.returncode == 0


def test_a_process_that_gdb_holds_lives_on(gdb: Gdb, program: Path) -> None:
    """gdb detaches from the process as always, whatever the exit status is."""
    with waiting(program) as pid:
        done = gdb("-x", "heapcmds.py", "-p", pid, "-ex", "findleaks --fail-on-leak")
        assert done.returncode == 3
        assert "answered Y" not in done.stdout + done.stderr
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    assert state == "S"


SOURCE = r"""
#include <cstdlib>
long table[8] = {1, 2, 3};
long *pointer = &table[2];
int calls;
__attribute__((noinline)) int counted() { return ++calls; }
namespace ns {
template <class T> __attribute__((noinline)) T grow(T x) { return x * 3; }
long numbers[4] = {4, 5, 6, 7};
struct Shape { virtual int area() { return 1; } };
}
ns::Shape *shape = new ns::Shape;
int main() {
    volatile int sum = counted() + ns::grow<int>(3) + ns::numbers[calls] + shape->area();
    if (pointer)
        abort();
    return sum;
}
"""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a C++ program with its core, which gdb takes when it aborts."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "names.cc").write_text(SOURCE)
    subprocess.run(["g++", "-g", "-O1", "-o", "names", "names.cc"], cwd=folder, check=True)
    core = folder / "core.1"
    words = ["-ex", "run", "-ex", f"gcore {core}", "-ex", "kill"]
    subprocess.run(["gdb", "-nx", "-batch", *words, "names"], cwd=folder, check=True, capture_output=True, timeout=HANG)
    return core


#: What is typed, and the same in gdb's words.
TYPED = (
    ("table+0x10", "(long) &table + 16"),  # as whatis prints it, in bytes
    ("table + 1", "&table[1]"),  # as in C
    ("pointer", "pointer"),
    ("&pointer", "&pointer"),
    ("pointer+0x10", "pointer + 16"),  # beyond the variable: dmods did not print this
    ("pointer+0x4", "(long) &pointer + 4"),
    ("main+0x4", "(long) &main + 4"),
    ("counted", "&counted"),
    ("$sp", "$sp"),
    ("$sp+0x10", "$sp + 16"),
    ("{long} $sp", "*(long *) $sp"),
    ("*(long *)$sp", "*(long *) $sp"),
    ("ns::grow<int>", "&ns::grow<int>"),
    ("names`main+0x4", "(long) &main + 4"),
    ("ns::grow<int>+0x2", "(long) &ns::grow<int> + 2"),
    ("grow<int>", "&ns::grow<int>"),
    ("counted()+0x1", "(long) &counted + 1"),
    ("ns::numbers+0x8", "(long) &ns::numbers + 8"),
    ("{vtable(ns::Shape)}+0x10", "*(long *) shape"),
)


def test_names_that_dmods_printed(gdb: Gdb, names: Path) -> None:
    """gdb's own print is the oracle. `mdb whatis` says which address it was asked about."""
    words: list[str] = []
    for typed, gdbs in TYPED:
        words += [*CUT, "-ex", f"mdb whatis {typed}", *CUT, "-ex", f'printf "0x%lx\\n", (long) ({gdbs})']
    answers = between(gdb("-x", "heapcmds.py", names, *words))
    assert len(answers) == 2 * len(TYPED)
    for (typed, _gdbs), said, expected in zip(TYPED, answers[::2], answers[1::2]):
        assert said.split()[0] == expected.strip(), typed


def test_a_printed_name_does_not_call_the_function(gdb: Gdb, names: Path) -> None:
    """dmods prints a C++ function with its parentheses. In a live process gdb reads them as a call."""
    program = names.with_name("names")
    words = ["-ex", "break abort", "-ex", "run", "-ex", "print calls", "-ex", "mdb whatis counted()+0x1"]
    done = gdb("-x", "heapcmds.py", program, *words, "-ex", "print calls", "-ex", "kill")
    assert re.findall(r"^\$\d = (\d+)$", done.stdout, re.MULTILINE) == ["1", "1"]


Shell = Callable[..., answers.Finished]


@pytest.fixture
def dmods_gdb(tmp_path: Path) -> Shell:
    def run(*words: object) -> answers.Finished:
        return answers.dmods("gdb", "-batch", *words, cwd=tmp_path, env=gdb_environment(tmp_path))

    return run


@pytest.mark.thorough("it starts gdb seven times")
def test_dmods_gdb_never_shows_gdb_a_core_as_a_program(dmods_gdb: Shell, core: Path, program: Path) -> None:
    for words in (
        [core], ["-c", core], [f"--core={core}"], [core, program], [program, core], ["--", core],
        ["-cd", core.parent, core.name], ["-nx", core, "-ex", "echo x\\n"],
    ):  # fmt: skip
        done = (
            dmods_gdb(*words, "-ex", "python print('PROGRAM', gdb.current_progspace().filename)", "-ex", "bt")
            if ("--" not in words)
            else dmods_gdb("-ex", "python print('PROGRAM', gdb.current_progspace().filename)", "-ex", "bt", *words)
        )
        assert f"PROGRAM {program}" in done.stdout, done.stderr
        assert "main" in done.stdout
        assert "executable format" not in done.stderr
        assert done.stdout.count("Core was generated") == 1


def test_dmods_gdb_passes_all_else_through(dmods_gdb: Shell, program: Path) -> None:
    done = dmods_gdb("-ex", "show args", "-ex", "run", "--args", program, "a", "b c")
    assert "a b\\ c" in done.stdout
    assert "ready" in done.stdout
    assert f'Symbols from "{program}"' in dmods_gdb(program, "-ex", "info files").stdout
    assert "ls" in dmods_gdb("ls", "-ex", "python print(gdb.current_progspace().filename)").stdout


@pytest.mark.parametrize("content", [b"", b"just text\n", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(40)])
def test_dmods_gdb_does_not_start_gdb_on_anything_else(dmods_gdb: Shell, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    for words in (["file"], ["-c", "file"], ["nonexistent"]):
        done = dmods_gdb(*words, "-ex", "echo STARTED\\n")
        assert done.returncode == 1
        assert "STARTED" not in done.stdout
        assert done.stderr.startswith("dmods: ")
        assert len(done.stderr.splitlines()) == 2
