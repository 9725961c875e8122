"""A kernel dump in any form, without vmlinux, gives the answers that vmlinux gives."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from fixtures import answers, kernel
from fixtures.kernel import Guest, compress
from tests.kernel.test_carried import RELEASES, in_assembler, without_lines

#: How makedumpfile compresses a dump.
PACKED = {"zlib": ("-c",), "lzo": ("-l",), "zstd": ("-z",), "flattened": ("-F", "-c")}
#: With answers from all over the kernel's memory.
PLAIN = ["memstat -v", "ps", "kmastat -v", "findleaks", "timers", "walk task"]
#: The other forms have the same pages in other blocks.
FORMS = [(form, words) for form in ("kexec", "zlib") for words in [*PLAIN, "stacks --json", "panicinfo --json"]]
FORMS += [(form, words) for form in ("lzo", "zstd", "flattened") for words in ("memstat -v", "findleaks")]

pytestmark = pytest.mark.thorough("it makes other dumps")


def dump_of(release: str, form: str) -> tuple[Guest, Path]:
    """Return a guest with its dump in that form."""
    if form == "kexec":
        guest = kernel.guest(release, "null", dump="kexec")
        return guest, guest.vmcore
    guest = kernel.guest(release, "null")
    return guest, guest.dumped(*PACKED[form], "-d", compress.LEVELS.get(release, "31"))


@cache
def with_vmlinux(release: str, form: str, words: str) -> subprocess.CompletedProcess[str]:
    """Return the command's answer with vmlinux."""
    guest, dump = dump_of(release, form)
    name, *rest = words.split()
    done = answers.dmods(name, dump, *rest, "-s", guest.vmlinux)
    assert done.stdout, done.stderr
    return done


@pytest.mark.parametrize(("form", "words"), FORMS)
@pytest.mark.parametrize("release", RELEASES)
def test_the_answers_are_those_with_vmlinux(release: str, form: str, words: str) -> None:
    _guest, dump = dump_of(release, form)
    name, *rest = words.split()
    own = answers.dmods(name, dump, *rest)
    theirs = with_vmlinux(release, "kexec" if form == "kexec" else "zlib", words)
    assert own.returncode == theirs.returncode, own.stderr
    if "--json" not in rest:
        assert "there is no vmlinux: symbols and types are the kernel's own (see doctor)" in own.stderr
        assert own.stdout == theirs.stdout
        return
    mine, real = json.loads(own.stdout), json.loads(theirs.stdout)
    assembler = in_assembler(real)
    assert without_lines(mine, assembler) == without_lines(real, assembler)
