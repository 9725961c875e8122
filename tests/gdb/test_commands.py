"""Commands in gdb: names, help, completion, arguments, output, errors, Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import dmods.command
from fixtures.answers import typed
from fixtures.limits import HANG
from tests.corekit import compile_c, kernel_core
from tests.gdb.conftest import Gdb, gdb_environment
from tests.output.test_next_command import next_commands

# Gives a command another body, so that a test can make it slow or defective.
REPLACE = "python import dmods.command; object.__setattr__(dmods.command.find_command('maps'), 'run', {})"


@pytest.mark.parametrize("name", ["maps", "mdb maps"])
def test_both_names(gdb: Gdb, core: Path, name: str) -> None:
    done = gdb("-x", "heapcmds.py", core, "-ex", "echo {cut}", "-ex", f"{name} --json")
    answer = json.loads(done.stdout.partition("{cut}")[2])
    assert answer["command"] == "maps"
    assert any(table["rows"] for table in answer["tables"])


def test_every_command_is_there(gdb: Gdb) -> None:
    done = gdb("-x", "heapcmds.py", "-ex", "help mdb")
    listed = set(re.findall(r"^mdb (\S+) -- .", done.stdout, re.MULTILINE))
    assert listed == {*dmods.command.command_names(), "sysbp"}


def test_gdbs_own_commands_stay(gdb: Gdb) -> None:
    """`whatis` is gdb's command: it prints a type."""
    done = gdb("-x", "heapcmds.py", "-ex", "whatis 1 + 1")
    assert "type = int" in done.stdout


def test_another_extensions_commands_stay(gdb: Gdb, core: Path, place: Path) -> None:
    (place / "other.py").write_text(
        "import gdb\n"
        "class Theirs(gdb.Command):\n"
        "    def invoke(self, argument, from_tty):\n"
        "        print('THEIRS')\n"
        "Theirs('maps', gdb.COMMAND_USER)\n"
    )
    done = gdb("-x", "other.py", "-x", "heapcmds.py", core, "-ex", "maps", "-ex", "mdb maps --json")
    assert "THEIRS" in done.stdout
    assert '"command"' in done.stdout


HERE = sorted(name for name, side, _module in dmods.command.command_modules() if side == dmods.command.USERLAND)


@pytest.mark.quick("memstat", "ps")
@pytest.mark.parametrize("name", sorted(set(dmods.command.command_names()) - set(HERE)))
def test_commands_for_kernels_say_where_they_run(gdb: Gdb, name: str) -> None:
    assert f"drgn -c vmcore {name}" in gdb("-x", "heapcmds.py", "-ex", f"help mdb {name}").stdout
    assert f"drgn -c vmcore {name}" in gdb("-x", "heapcmds.py", "-ex", f"mdb {name} -v").stderr


@pytest.mark.quick("findleaks", "walk", "whatis", "bufctl_audit", "triage")
@pytest.mark.parametrize("name", HERE)
def test_help_has_all_that_the_command_declares(gdb: Gdb, name: str) -> None:
    command = dmods.command.find_command(name)
    text = gdb("-x", "heapcmds.py", "-ex", f"help mdb {name}").stdout
    assert text.lower().startswith(command.summary.lower().rstrip("."))
    assert f"Usage: {name}" in text
    for argument in command.arguments:
        assert argument.names[-1] in text or str(argument.options.get("metavar")) in text
    for line, _shows in command.examples:
        assert line in text


def test_help_option_prints_help_and_gdb_lives(gdb: Gdb) -> None:
    done = gdb("-x", "heapcmds.py", "-ex", "mdb maps --help", "-ex", "print 40 + 2")
    assert "--json" in done.stdout
    assert "= 42" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mdb ma", "mdb maps"),
        ("map", "maps"),
        ("maps --js", "maps --json"),
        ("mdb maps --js", "mdb maps --json"),
        ("maps -", "maps --help"),
        ("sysbp _ex", "sysbp _exit"),
        ("mdb findleaks greet", "mdb findleaks greeting"),
    ],
)
def test_completion(gdb: Gdb, program: Path, typed: str, offered: str) -> None:
    done = gdb("-x", "heapcmds.py", program, "-ex", f"complete {typed}")
    assert offered in done.stdout.splitlines()


def test_pipe_takes_results_and_not_notes(gdb: Gdb, core: Path) -> None:
    body = REPLACE.format("lambda t, a: __import__('dmods.report').report.Report(notes=['a note'])")
    done = gdb(
        "-x",
        "heapcmds.py",
        core,
        "-ex",
        "pipe mdb maps --json | tr a-z A-Z",
        "-ex",
        body,
        "-ex",
        "pipe maps | tr a-z A-Z",
    )
    assert '"COMMAND": "MAPS"' in done.stdout
    assert "a note" in done.stderr
    assert "A NOTE" not in done.stdout


def test_logging_takes_results(gdb: Gdb, core: Path, place: Path) -> None:
    log = place / "log"
    gdb(
        "-x",
        "heapcmds.py",
        core,
        "-ex",
        f"set logging file {log}",
        "-ex",
        "set logging enabled on",
        "-ex",
        "mdb maps --json",
    )
    assert '"command"' in log.read_text()


def test_a_wrong_option_is_two_lines(gdb: Gdb, core: Path) -> None:
    done = gdb("-x", "heapcmds.py", core, "-ex", "maps --nonsense", "-ex", "print 40 + 2")
    lines = done.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if "--nonsense" in line)
    assert lines[at + 1].startswith("usage: maps")
    assert "Traceback" not in done.stderr
    assert "= 42" in done.stdout


def test_a_defect_keeps_its_traceback(gdb: Gdb, core: Path) -> None:
    done = gdb(
        "-x", "heapcmds.py", core, "-ex", REPLACE.format("lambda t, a: 1 // 0"), "-ex", "maps", "-ex", "print 40 + 2"
    )
    assert "ZeroDivisionError" in done.stderr
    assert "line 1, in <lambda>" in done.stderr
    assert "= 42" in done.stdout


@pytest.mark.quick("$sp + 2 * 8-$sp + 16", "main-&main", "-d $sp-$sp")
@pytest.mark.parametrize(
    ("expression", "gdbs"),
    [
        ("main", "&main"),
        ("&greeting[4]", "&greeting[4]"),
        ("greeting + 4", "&greeting[4]"),
        ("$sp", "$sp"),
        ("$sp + 2 * 8", "$sp + 16"),
        ("0x10", "16"),
        ("-d $sp", "$sp"),
        ("*(long *) $sp", "*(long *) $sp"),
    ],
)
def test_addresses_are_gdb_expressions(gdb: Gdb, core: Path, place: Path, expression: str, gdbs: str) -> None:
    """A command prints the address that it was given. gdb's own print is the oracle."""
    (place / "probe.py").write_text(
        "import gdb\n"
        "from dmods.command import Argument, Command\n"
        "from dmods.report import Column, Report, Table\n"
        "import gdbext.commands\n"
        "def run(target, args):\n"
        "    rows = [(target.evaluate(args.address),)]\n"
        "    return Report([Table('probe', [Column('address', 'address')], rows, style='plain')])\n"
        "place = Argument('address', metavar='ADDR', help='an address')\n"
        "flag = Argument('-d', action='store_true', help='a flag')\n"
        "probe = Command('probe', 'Print an address', run, arguments=[place, flag])\n"
        "gdbext.commands.find_command = lambda _name: probe\n"
        "gdbext.commands._GdbCommand('probe', 'probe', 'Print an address')\n"
    )
    done = gdb(
        "-x", "heapcmds.py", core, "-x", "probe.py", "-ex", "echo ANSWER ", "-ex", f"probe {expression}",
        "-ex", f'printf "EXPECTED %lx\\n", (long) ({gdbs})',
    )  # fmt: skip
    answer = re.search(r"ANSWER\s*(?:0x)?([0-9a-f]+)", done.stdout)
    expected = re.search(r"EXPECTED ([0-9a-f]+)", done.stdout)
    assert answer is not None, done.stderr
    assert expected is not None, done.stderr
    assert int(answer[1], 16) == int(expected[1], 16)


def test_an_expression_that_gdb_cannot_evaluate(gdb: Gdb, core: Path) -> None:
    done = gdb("-x", "heapcmds.py", core, "-ex", "mdb whatis 1 +", "-ex", "mdb whatis nosuchsymbol")
    assert "1 +" in done.stderr
    assert "nosuchsymbol" in done.stderr
    assert "Traceback" not in done.stderr


class Terminal:
    """gdb on a terminal that the test types on."""

    def __init__(self, arguments: list[str], cwd: Path, home: Path) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe("gdb", ["gdb", "-q", *arguments], gdb_environment(home))

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def until(self, pattern: str, seconds: float = HANG) -> str:
        seen, end = "", time.monotonic() + seconds
        while not re.search(pattern, seen):
            waiting = select.poll()  # select() knows no descriptor above 1023
            waiting.register(self.fd, select.POLLIN)
            ready = waiting.poll(max(0.0, end - time.monotonic()) * 1000)
            assert ready, f"no {pattern!r} in {seen!r}"
            seen += os.read(self.fd, 4096).decode(errors="replace")
        return seen

    def close(self) -> None:
        os.close(self.fd)  # gdb gets a hangup and ends
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize(
    "body",
    [
        "lambda t, a: print('START') or __import__('time').sleep(3600)",
        "lambda t, a: print('START') or [1 for _ in iter(int, 1)]",
    ],
    ids=["in native code", "in Python"],
)
def test_control_c_leaves_gdb_usable(core: Path, place: Path, tmp_path: Path, body: str) -> None:
    gdb = Terminal(["-x", "heapcmds.py", str(core)], place, tmp_path)
    try:
        gdb.until(r"\(gdb\) $")
        gdb.type(REPLACE.format(body) + "\n")
        gdb.until(r"\(gdb\) $")
        gdb.type("maps\n")
        gdb.until(r"START\r\n")
        gdb.type("\x03")
        assert "Traceback" not in gdb.until(r"Interrupted[^(]*\(gdb\) $")
        gdb.type("print 40 + 2\n")
        gdb.until(r"\$1 = 42")
    finally:
        gdb.close()


def test_loading_leaves_out_what_no_command_here_needs(gdb: Gdb) -> None:
    """scripts/bench measures the cost of registering. These imports would be most of it."""
    show = "python import sys; print('LOADED', *sorted(sys.modules))"
    _, _, loaded = gdb("-x", "heapcmds.py", "-ex", show).stdout.partition("LOADED ")
    assert "gdbext.commands" in loaded.split()
    heavy = ["drgn.", "drgnext.", "elftools.", "importlib.metadata", "subprocess", "hashlib", "shutil", "tarfile"]
    # No command before its name is typed, and nothing that reads a core before there is one.
    heavy += ["dmods.commands.", "dmods.heap", "dmods.allocators", "dmods.graph", "dmods.corefile", "gdbext.session"]
    assert [name for name in loaded.split() if name.startswith(tuple(heavy)) and name != "drgnext.commands"] == []


def test_no_name_of_gdbs_for_a_slot_of_the_offset_table(gdb: Gdb, place: Path) -> None:
    """gdb makes up "abort@got.plt" for the slot and for all data behind it. No file has this name."""
    source = place / "slot.c"
    source.write_text("#include <stdlib.h>\nint main(void) { abort(); }\n")
    program = compile_c(source, place / "slot", "-no-pie", "-Wl,-z,lazy", "-Wl,-z,norelro", "-s")
    core = kernel_core(program, place)
    with open(program, "rb") as stream:
        (slot,) = {each["r_offset"] for each in ELFFile(stream).get_section_by_name(".rela.plt").iter_relocations()}
    info = gdb("-x", "heapcmds.py", core, "-ex", f"info symbol {slot:#x}").stdout
    assert "abort@got" in info
    done = gdb("-x", "heapcmds.py", core, "-ex", "echo {cut}", "-ex", f"mdb whatis {slot:#x} --json")
    said = json.loads(done.stdout.partition("{cut}")[2])
    assert said["tables"] == typed("whatis", core, hex(slot))["tables"]


ONE = "#include <stdlib.h>\nint other(int);\n"
ONE += "static int __attribute__((noinline)) grow(int x) { return x * 3 + rand(); }\n"
ONE += "static int once(int x) { return grow(x) + other(x); }\nint main(int argc, char **argv) { (void)argv;\n"
ONE += "    if (once(argc)) abort();\n    abort(); }\n"
TWO = "#include <stdlib.h>\nstatic int __attribute__((noinline)) grow(int x) { return x * 5 - rand(); }\n"
TWO += "int other(int x) { return grow(x); }\n"


@pytest.mark.parametrize("flags", ["-g", "-g0"])
def test_a_name_of_two_functions_is_refused(gdb: Gdb, tmp_path: Path, flags: str) -> None:
    """Both files have a function of that name. gdb's own commands take one of them without a word."""
    for name, text in {"one.c": ONE, "two.c": TWO}.items():
        (tmp_path / name).write_text(text)
    argv = ["gcc", flags, "-O1", "-o", "two", "one.c", "two.c"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    core = kernel_core(tmp_path / "two", tmp_path)
    done = gdb("-x", "heapcmds.py", core, "-ex", "mdb whatis grow", "-ex", "mdb whatis other")
    assert "grow is ambiguous: 2 symbols have this name" in done.stderr
    assert " is other, in " in done.stdout


EXTRA = '#line 1 "extra"\n'
EXTRA += "int seen[4] = {1};\nstatic int hidden = 2;\nint work(void) { return hidden++ + seen[0]; }\n"


@pytest.mark.parametrize("flags", ["-g", "-g0"])
def test_names_of_a_symbol_file_that_only_gdb_knows(gdb: Gdb, core: Path, tmp_path: Path, flags: str) -> None:
    """dmods asks gdb for a name that no module of the core has."""
    (tmp_path / "extra.c").write_text(EXTRA)
    extra = compile_c(tmp_path / "extra.c", tmp_path / "extra.so", flags, "-shared", "-fPIC")
    with open(extra, "rb") as stream:
        table = ELFFile(stream).get_section_by_name(".symtab")
        truth = {name: table.get_symbol_by_name(name)[0]["st_value"] + (1 << 32) for name in ("seen", "hidden", "work")}
    asked = [*truth, "extra", "not_there"]  # a source file, and nothing
    show = "python import json; from gdbext.session import current_target; look = current_target().lookup; "
    show += f"print('{{cut}}', json.dumps({{name: look(name) and look(name).address for name in {asked!r}}}))"
    done = gdb("-x", "heapcmds.py", core, "-ex", f"add-symbol-file {extra} -o {1 << 32}", "-ex", show)
    assert json.loads(done.stdout.partition("{cut}")[2]) == {**truth, "extra": None, "not_there": None}, done.stderr


def test_the_next_command_is_one_of_gdbs(gdb: Gdb, core: Path) -> None:
    done = gdb("-x", "heapcmds.py", core, "-ex", "triage")
    (command, *_) = next_commands(done.stdout)
    assert command.partition(" ")[0] in HERE
    assert gdb("-x", "heapcmds.py", core, "-ex", command).stdout
