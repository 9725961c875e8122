"""A kernel that does not say where its symbol table is (before 6.0): the table is found by its shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import answers, kernel
from fixtures.kernel import Guest
from tests.kernel.test_carried import PREPARE, in_assembler, in_drgn, without_lines
from tests.kernel.test_carried_dumps import dump_of

RELEASE = "5.10"
PLAIN = ["memstat -v", "ps", "dmesg", "meminfo", "kmastat -v", "timers", "locks", "sockets", "findleaks", "walk task"]

pytestmark = pytest.mark.thorough("it needs another kernel")


def same(guest: Guest, dump: Path, words: str) -> None:
    """Assert that the command prints without vmlinux what it prints with it."""
    name, *rest = words.split()
    own, theirs = answers.dmods(name, dump, *rest), answers.dmods(name, dump, *rest, "-s", guest.vmlinux)
    assert "symbols and types are the kernel's own (see doctor)" in own.stderr
    assert theirs.stdout
    assert (own.returncode, own.stdout) == (theirs.returncode, theirs.stdout)


@pytest.mark.parametrize("words", PLAIN)
def test_the_answers_are_those_with_vmlinux(words: str) -> None:
    guest = kernel.guest(RELEASE, "null")
    same(guest, guest.vmcore, words)


@pytest.mark.parametrize("form", ["kexec", "zlib"])
def test_other_forms_of_dumps(form: str) -> None:
    same(*dump_of(RELEASE, form), "memstat -v")


def test_frames_are_the_same_but_for_lines() -> None:
    guest = kernel.guest(RELEASE, "null")
    own = answers.typed("stacks", guest.vmcore)
    theirs = answers.typed("stacks", guest.vmcore, "-s", guest.vmlinux)
    assembler = in_assembler(theirs)
    own.pop("notes")
    assert without_lines(own, assembler) == without_lines(theirs, assembler)


def test_a_table_that_is_told_is_found_as_well(tmp_path: Path) -> None:
    """6.1 has the same arrays in the same order, and says where they are."""
    file = tmp_path / "script.py"
    script = """
from drgnext.kernel.dump.own_types import kallsyms, proofs
said = proofs.told(prog)
told = kallsyms.own_symbols(prog, said).rows()
less = {name: at for name, at in said.symbols.items() if not name.startswith("kallsyms_")}
found = kallsyms.own_symbols(prog, proofs.Told(less, said.answers, said.moved, said.release, said.build_id)).rows()
print(json.dumps([len(told), told == found]))
"""
    file.write_text(PREPARE + script)
    count, same = in_drgn(kernel.guest("6.1", "null"), file)
    assert (count > 50_000, same) == (True, True)
