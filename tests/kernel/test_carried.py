"""A kernel dump without vmlinux: the kernel's own symbols and types give the answers that vmlinux gives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import pytest
from drgn import MissingDebugInfoError, Program

from dmods.errors import UserError
from drgnext import launch, session
from drgnext.kernel.dump import debuginfo
from drgnext.kernel.dump.own_types import carried
from drgnext.kernel.dump.own_types.declared import declarations
from fixtures import answers, kernel
from fixtures.kernel import Guest
from tests import quick
from tests.kernel.carried import structures, without_types

DRGN = Path(sys.executable).with_name("drgn")
RELEASES = ["6.1", "6.12", "sid"]
#: Commands whose answers have no source lines.
PLAIN = ["memstat -v", "ps", "dmesg", "meminfo", "kmastat -v", "runq", "irq", "timers", "locks", "mounts", "sockets"]
PLAIN += ["swapinfo", "netdev", "memcgs", "dentries", "disks", "inflight", "files 1", "walk task", "trapframe"]
PLAIN += ["findleaks", "slabcheck", "whatis init_task", "vmalloc", "workqueues -a"]
STACKS = ["findstack", "stacks"]
QUICK = {"memstat -v", "ps", "meminfo", "kmastat -v", "timers", "findleaks"}
#: What only vmlinux has.
LINES = {"source", "inlined", "called_from", "note", "notes"}


def guest_of(release: str) -> Guest:
    return kernel.guest(release, "null")


def both(release: str, words: str, *more: str) -> tuple[str, str]:
    """Return what the command prints without vmlinux, and with it."""
    guest = guest_of(release)
    name, *rest = words.split()
    own = answers.dmods(name, guest.vmcore, *rest, *more)
    theirs = answers.dmods(name, guest.vmcore, *rest, *more, "-s", guest.vmlinux)
    assert "there is no vmlinux: symbols and types are the kernel's own (see doctor)" in own.stderr or more
    assert (own.returncode, bool(own.stdout)) == (theirs.returncode, bool(theirs.stdout)), own.stderr
    return own.stdout, theirs.stdout


@pytest.mark.quick("6.1-memstat -v", "6.1-findleaks", "6.1-ps")
@pytest.mark.parametrize("words", quick.only(QUICK, PLAIN))
@pytest.mark.parametrize("release", RELEASES)
def test_the_answers_are_those_with_vmlinux(release: str, words: str) -> None:
    own, theirs = both(release, words)
    assert own == theirs


def in_assembler(value: Any) -> set[int]:
    """Return the pcs of frames whose source is in assembler. Labels within a function are functions to kallsyms."""
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    found = set().union(*map(in_assembler, parts))
    if isinstance(value, dict) and str((value.get("source") or {}).get("file")).endswith(".S"):
        found.add(value["pc"])
    return found


def without_lines(value: Any, assembler: set[int]) -> Any:
    if isinstance(value, dict):
        named = {"function", "offset", "name"} if value.get("pc") in assembler else set()
        return {name: without_lines(each, assembler) for name, each in value.items() if name not in LINES | named}
    return [without_lines(each, assembler) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("words", quick.only(["stacks"], STACKS))
@pytest.mark.parametrize("release", RELEASES)
def test_frames_are_the_same_but_for_lines(release: str, words: str) -> None:
    own, theirs = (json.loads(each) for each in both(release, words, "--json"))
    assembler = in_assembler(theirs)
    assert without_lines(own, assembler) == without_lines(theirs, assembler)


@pytest.mark.parametrize("release", RELEASES)
def test_panicinfo_is_the_same_but_for_lines(release: str) -> None:
    own, theirs = both(release, "panicinfo")
    assert own == re.sub(r" \([\w./-]+:\d+[^)]*\)", "", theirs)


def in_drgn(guest: Guest, script: Path, *words: str) -> Any:
    """Return the JSON that a script prints in drgn. It gets the words."""
    command = [str(DRGN), "-q", *words, "-c", str(guest.vmcore), str(script)]
    environment = {"PYTHONPATH": str(answers.ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**environment, "PATH": "/usr/bin"})
    return json.loads(done.stdout)


PREPARE = """
import json
from drgnext.kernel.dump import debuginfo
debuginfo.require(prog)
"""


def with_and_without(guest: Guest, folder: Path, script: str) -> tuple[Any, Any]:
    file = folder / "script.py"
    file.write_text(PREPARE + script)
    return in_drgn(guest, file), in_drgn(guest, file, "-s", str(guest.vmlinux))


def flat(text: str) -> str:
    """Write arrays of arrays as one, as BTF does."""
    return re.sub(r"(?:\[\d+\]){2,}", lambda found: f"[{prod(map(int, re.findall(r'[0-9]+', found[0])))}]", text)


@pytest.mark.parametrize("release", RELEASES)
def test_structures_are_those_of_dwarf(release: str, tmp_path: Path) -> None:
    """A thousand of them, each member with its type, offset and size in bits."""
    guest = guest_of(release)
    names = structures(guest.vmcore)
    names = names[:: max(1, len(names) // 1000)][:1000]
    script = f"""
def shown(name):
    try:
        type_ = prog.type("struct " + name)
    except LookupError:
        return None
    members = [(m.name, m.type.type_name(), m.bit_offset, m.bit_field_size) for m in type_.members]
    return [type_.size, members]
print(json.dumps({{name: shown(name) for name in {names!r}}}))
"""
    own, theirs = with_and_without(guest, tmp_path, script)
    names = [name for name in names if theirs[name] is not None]  # some are in modules that are part of the kernel
    differ = [name for name in names if flat(json.dumps(own[name])) != flat(json.dumps(theirs[name]))]
    assert len(names) > 900
    assert not differ, [(own[name], theirs[name]) for name in differ[:3]]


@pytest.mark.parametrize("release", RELEASES)
def test_variables_are_declared_as_the_kernel_does(release: str, tmp_path: Path) -> None:
    """The types that dmods writes down are those of vmlinux, for every variable that this kernel has."""
    names = [name for name, *_rest in declarations()]
    script = f"""
found = {{}}
for name in {names!r}:
    try:
        variable = prog.variable(name)
    except LookupError:
        continue
    found[name] = variable.type_.type_name(), variable.address_
print(json.dumps(found))
"""
    own, theirs = with_and_without(guest_of(release), tmp_path, script)
    plain = re.compile(r"\b(?:const|volatile) |\[\d*\]| (?=\[)")
    of = {name: (plain.sub("", text), address) for name, (text, address) in own.items()}
    real = {name: (plain.sub("", text), address) for name, (text, address) in theirs.items()}
    same = {"pg_data_t": "struct pglist_data"}
    real = {name: (re.sub(r"^\w+", lambda f: same.get(f[0], f[0]), text), at) for name, (text, at) in real.items()}
    assert {name: (of.get(name), found) for name, found in real.items() if of.get(name) != found} == {}
    assert len(of) > 100


@pytest.mark.parametrize("release", ["5.10", *RELEASES])
def test_symbols_are_those_that_nm_lists(release: str, tmp_path: Path) -> None:
    guest = guest_of(release)
    listed = subprocess.run(["nm", guest.vmlinux], capture_output=True, text=True, check=True).stdout
    known = {tuple(line.split()[::2]) for line in listed.splitlines()}
    script = """
from drgnext.kernel.dump.own_types import carried
found = carried.find(prog, carried.Files(), carried.Outcome())
print(json.dumps([found.start, found.moved, found.symbols.rows()]))
"""
    file = tmp_path / "script.py"
    file.write_text(PREPARE + script)
    start, moved, rows = in_drgn(guest, file)
    mine = {(f"{at - moved if at - moved >= start else at:016x}", name) for at, _kind, name in rows}
    assert len(mine) > 50_000
    assert mine - known == set()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return without_types(guest_of("6.1").vmcore, tmp_path_factory.mktemp("bare"))


def test_without_types_the_log_is_left(bare: Path) -> None:
    done = answers.dmods("panicinfo", bare)
    assert done.returncode == 1
    assert "BUG: kernel NULL pointer dereference" in done.stdout
    assert "no debugging information for this kernel" in done.stderr
    assert "its own is of no use: BTF: it does not begin as BTF does" in done.stderr


def test_other_commands_say_what_is_missing(bare: Path) -> None:
    done = answers.dmods("memstat", bare)
    assert (done.returncode, done.stdout) == (1, "")
    assert "its own is of no use: BTF: it does not begin as BTF does" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_type_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import drgn

    prog = drgn.Program()
    prog.set_core_dump(guest_of("6.1").vmcore)
    with suppress(drgn.MissingDebugInfoError):  # of modules
        prog.load_debug_info(default=True)
    subject = session.kernel(prog)
    assert carried.stands_for_vmlinux(prog)
    named = "than the symbols and types that the kernel carries: could not find 'struct no_such_type'"
    with pytest.raises(UserError, match=named), session.faults(subject, "ps"):
        prog.type("struct no_such_type")
    monkeypatch.setattr(carried, "stands_for_vmlinux", lambda _prog: False)
    with pytest.raises(LookupError), session.faults(subject, "ps"):
        prog.type("struct no_such_type")


def test_a_vmlinux_is_taken_before_what_the_kernel_carries() -> None:
    done = answers.dmods("memstat", guest_of("6.1").vmcore, "-s", guest_of("6.1").vmlinux)
    assert "there is no vmlinux" not in done.stderr


@pytest.mark.thorough("it opens a guest")
def test_a_session_says_once_that_there_is_no_vmlinux(capsys: pytest.CaptureFixture[str]) -> None:
    prog = Program()
    prog.set_core_dump(str(guest_of("6.1").vmcore))
    debuginfo.prepare(prog)
    with suppress(MissingDebugInfoError):
        prog.load_debug_info([], default=True)
    said = []
    for words in ([], [], ["--json"]):
        launch._run("memstat", prog, words, {})
        said.append(capsys.readouterr())
    note = "there is no vmlinux: symbols and types are the kernel's own (see doctor)"
    assert [each.err for each in said] == [f"note: {note}\n", "", ""]
    assert json.loads(said[2].out)["notes"] == [note]
