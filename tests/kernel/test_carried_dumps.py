"""A kernel dump in any form, without vmlinux, gives the answers that vmlinux gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures import answers, kernel
from fixtures.kernel import Guest, compress
from tests.kernel.test_carried import RELEASES, in_assembler, without_lines

#: How makedumpfile compresses a dump.
PACKED = {"zlib": ("-c",), "lzo": ("-l",), "zstd": ("-z",), "flattened": ("-F", "-c")}
#: With answers from all over the kernel's memory.
PLAIN = ["memstat -v", "ps", "kmastat -v", "findleaks", "timers", "walk task"]

pytestmark = pytest.mark.thorough("it makes other dumps")


def dump_of(release: str, form: str) -> tuple[Guest, Path]:
    """Return a guest with its dump in that form."""
    if form == "kexec":
        guest = kernel.guest(release, "null", dump="kexec")
        return guest, guest.vmcore
    guest = kernel.guest(release, "null")
    return guest, guest.dumped(*PACKED[form], "-d", compress.LEVELS.get(release, "31"))


def both(release: str, form: str, words: str) -> tuple[str, str]:
    """Return what the command prints without vmlinux, and with it."""
    guest, dump = dump_of(release, form)
    name, *rest = words.split()
    own = answers.dmods(name, dump, *rest)
    theirs = answers.dmods(name, dump, *rest, "-s", guest.vmlinux)
    note = "there is no vmlinux: symbols and types are those that the kernel carries"
    assert "--json" in rest or note in own.stderr
    assert theirs.stdout, theirs.stderr
    assert own.returncode == theirs.returncode, own.stderr
    return own.stdout, theirs.stdout


@pytest.mark.parametrize("words", PLAIN)
@pytest.mark.parametrize("form", ["kexec", *PACKED])
@pytest.mark.parametrize("release", RELEASES)
def test_the_answers_are_those_with_vmlinux(release: str, form: str, words: str) -> None:
    own, theirs = both(release, form, words)
    assert own == theirs


@pytest.mark.parametrize("form", ["kexec", *PACKED])
@pytest.mark.parametrize("release", RELEASES)
def test_frames_are_the_same_but_for_lines(release: str, form: str) -> None:
    own, theirs = (json.loads(each) for each in both(release, form, "stacks --json"))
    assembler = in_assembler(theirs)
    assert without_lines(own, assembler) == without_lines(theirs, assembler)
