"""`suspects` on what is held: who holds it, what it is, and that one core cannot tell whether it grows (holds.c)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fixtures import answers
from tests.corekit import HERE, compile_c, kernel_core

_THREADS, _ENTRIES, _REQUESTS = 4, 6000, 20000
_DOUBT = "One core cannot tell whether what is held grows"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(HERE / "commands" / "holds.c", tmp_path_factory.mktemp("holds") / "holds", "-pthread")


def played(program: Path, where: Path, *how: str) -> tuple[Path, dict[str, int]]:
    """Return the core, and what the program said of itself."""
    said = where / "said"
    core = kernel_core(program, where, *how, output=said)
    lines = (line.split() for line in said.read_text().splitlines())
    return core, {name: int(value, 0) for name, value in lines}


def asked(core: Path, *words: str) -> dict[str, Any]:
    return answers.typed("suspects", core, *words)


@pytest.mark.parametrize(("how", "name"), [("thread-local", "thread-local mine"), ("local", "with_local: local")])
def test_what_each_thread_has_is_one_suspect(program: Path, tmp_path: Path, how: str, name: str) -> None:
    core, truth = played(program, tmp_path, how)
    (row,) = asked(core, "--least", "2M")["tables"][0]["rows"]
    assert row["sentence"].startswith(f"`{name}` of {_THREADS} threads keeps ")
    assert row["count"] == _THREADS * _ENTRIES
    assert row["bytes"] == truth["held"]
    assert row["root"] == f"`{name}`"
    assert f"{_ENTRIES:,} struct entry (one holds 'thread" in row["sentence"]


def test_the_objects_are_named_beside_their_texts(program: Path, tmp_path: Path) -> None:
    core, truth = played(program, tmp_path, "queue")
    (row,) = asked(core, "--least", "2M")["tables"][0]["rows"]
    assert row["sentence"].startswith("`head` (holds) keeps ")
    assert f"(struct request) at {truth['head']:#x}" in row["sentence"]
    assert f"{_REQUESTS:,} char[], {_REQUESTS:,} struct request (one holds 'POST /orders/" in row["sentence"]


def test_a_table_that_is_hardly_filled_is_no_suspect(program: Path, tmp_path: Path) -> None:
    core, truth = played(program, tmp_path, "reserved")
    answer = asked(core)
    assert answer["totals"]["suspects"] == 0
    assert any("one block that is hardly filled" in note for note in answer["notes"])
    # It has most of the memory all the same, and that is said.
    (row,) = answers.by_name(answer)["largest"]
    assert row["sentence"].startswith("`table` (holds) keeps ")
    assert f"at {truth['table']:#x}, which is nearly all zeros" in row["sentence"]


def test_a_table_that_is_full_is_no_suspect(program: Path, tmp_path: Path) -> None:
    """One block does not accumulate: the program asked for all of it at once."""
    core, truth = played(program, tmp_path, "full")
    answer = asked(core)
    assert answer["totals"]["suspects"] == 0
    assert any("a few large blocks" in note for note in answer["notes"])
    # A limit that the user names holds for it, too.
    assert asked(core, "--least", "1M")["totals"]["suspects"] == 1
    (row,) = answers.by_name(answer)["largest"]
    assert row["address"] == hex(truth["table"])
    assert "zeros" not in row["sentence"]


@pytest.mark.parametrize(("count", "found"), [(30000, 0), (50000, 1)])
def test_a_queue_is_a_possible_suspect_from_16_mb_on(program: Path, tmp_path: Path, count: int, found: int) -> None:
    core, truth = played(program, tmp_path, "queue", str(count))
    assert (truth["held"] >= 16 << 20) == bool(found)
    answer = asked(core)
    assert answer["totals"]["suspects"] == found
    (row,) = answers.by_name(answer)["suspects" if found else "largest"]
    assert row["sentence"].startswith("`head` (holds) keeps ")
    assert (row["kind"], row["confidence"], row["bytes"]) == ("held", "possible", truth["held"])
    assert "growth" in row["remedy"]
    done = answers.dmods("suspects", core)
    assert done.returncode == 0
    assert (_DOUBT in done.stdout) == bool(found)
    assert ("nothing has 16M" in done.stderr) != bool(found)


@pytest.mark.parametrize(("count", "size", "found"), [(10, 4_000_000, 0), (500, 80_000, 1), (10, 8_000_000, 1)])
def test_a_few_large_blocks_take_64_mb(program: Path, tmp_path: Path, count: int, size: int, found: int) -> None:
    core, truth = played(program, tmp_path, "buffers", str(count), str(size))
    assert truth["held"] >= 16 << 20
    answer = asked(core)
    assert answer["totals"]["suspects"] == found
    (row,) = answers.by_name(answer)["suspects" if found else "largest"]
    assert row["bytes"] == truth["held"]


def test_a_type_of_the_language_is_no_suspect(tmp_path: Path) -> None:
    """Sixteen variables of a script have 40,000 objects and their names: a class is a suspect, `str` is none."""
    core = kernel_core(Path("/usr/bin/python3"), tmp_path, "-c", _SPREAD)
    answer = asked(core, "--least", "1M")
    rows = [row for row in answers.by_name(answer)["suspects"] if row["kind"] == "type"]
    assert [re.search(r"[\d,]+ (\S+) take", row["sentence"])[1] for row in rows] == ["User"]
    assert rows[0]["count"] == 40000


@pytest.mark.parametrize(
    ("how", "holder", "first"),
    [
        ("kept", "__main__.Session.registry", "retained 0x"),
        ("cycles", "garbage that Python's collector has not freed", "pyobjects --cycles"),
    ],
)
def test_objects_of_a_class_are_named_among_their_parts(tmp_path: Path, how: str, holder: str, first: str) -> None:
    """Each object has a text, a number and a buffer: none of these kinds has most of the memory."""
    core = kernel_core(Path("/usr/bin/python3"), tmp_path, "-c", _SESSIONS, how)
    (row,) = (row for row in asked(core, "--least", "1M")["tables"][0]["rows"] if row["root"] == f"`{holder}`")
    count = re.search(r" blocks of many sizes, ([\d,]+) Session among them \(one holds 'session", row["sentence"])
    assert count, row["sentence"]
    # The last one may be a local variable's as well, and a word that is left over on a stack may lead to one.
    assert 9990 <= int(count[1].replace(",", "")) <= 10000
    assert row["next"][0].startswith(first)


@pytest.mark.parametrize("is_stripped", [False, True])
def test_a_register_is_named_by_its_function(tmp_path: Path, is_stripped: bool) -> None:
    source = tmp_path / "holding.c"
    source.write_text(_HOLDING)
    core = kernel_core(compile_c(source, tmp_path / "holding", *(["-s"] if is_stripped else [])), tmp_path)
    (row,) = asked(core, "--least", "1M")["tables"][0]["rows"]
    name = r"holding`0x[0-9a-f]+: register \w+" if is_stripped else r"main: block"
    assert re.match(f"`{name}` keeps ", row["sentence"]), row["sentence"]
    assert "frame" not in row["sentence"]


@pytest.mark.parametrize("is_stripped", [False, True])
def test_a_list_with_a_head_and_a_tail_is_one_suspect(tmp_path: Path, is_stripped: bool) -> None:
    """Each of the two leads to all items, so none holds the list alone, and no item holds the rest."""
    source = tmp_path / "ends.c"
    source.write_text(_ENDS)
    core = kernel_core(compile_c(source, tmp_path / "ends", *(["-s"] if is_stripped else [])), tmp_path)
    (row,) = asked(core, "--least", "1M")["tables"][0]["rows"]
    # Side by side and without names they are one variable.
    holders = r"`0x[0-9a-f]+` \(ends\) keeps " if is_stripped else r"`head` \(ends\) and `tail` \(ends\) keep "
    assert re.match(holders, row["sentence"]), row["sentence"]
    assert row["count"] == 40000
    assert answers.typed("suspects", core)["tables"][-1]["rows"][0]["bytes"] == row["bytes"]


@pytest.mark.quick("300")
@pytest.mark.parametrize("more", [0, 100, 300, 600])
def test_what_an_extension_of_python_holds_has_its_variable(tmp_path: Path, more: int) -> None:
    """The list of objects is also at an end of a list of CPython's collector, which owns nothing.

    Its items have a mapping of their own, with room behind them. What lies in the heap next to it is moved about by
    ``more`` bytes of the environment.
    """
    source = tmp_path / "keeping.c"
    source.write_text("void *seen; void keep(void *object) { seen = object; }")
    library = compile_c(source, tmp_path / "keeping.so", "-shared", "-fPIC")
    core = kernel_core(Path("/usr/bin/python3"), tmp_path, "-c", _EXTENDED, str(library), env={"MORE": "x" * more})
    first = asked(core, "--least", "1M")["tables"][0]["rows"][0]
    assert first["sentence"].startswith("`seen` (keeping.so)")
    count = re.search(r": ([\d,]+) dict \(one holds 'user:", first["sentence"])
    assert count, first["sentence"]
    # The ends of the collector's other lists, and a dict that was looked at last, may be held by others as well.
    assert _REQUESTS - 50 <= int(count[1].replace(",", "")) <= _REQUESTS


_ENDS = """
#include <stdlib.h>
struct item { struct item *next, *prev; long id, more[4]; } *head, *tail;
int main(void) {
    for (long i = 0; i < 40000; i++) {
        struct item *made = calloc(1, sizeof *made);
        made->id = i;
        made->prev = tail;
        *(tail != NULL ? &tail->next : &head) = made;
        tail = made;
    }
    abort();
}
"""
_SESSIONS = """
import gc, os, sys
gc.disable()
class Session:
    registry = {}
    def __init__(self, number):
        self.number, self.name, self.data = number, "session of user %d" % number, bytearray(100)
for number in range(10000):
    session = Session(number)
    if sys.argv[1] == "kept":
        Session.registry[number] = session
    else:
        session.me = session
os.abort()
"""
_EXTENDED = """
import ctypes, os, sys
def fill():
    made = []
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    keep = ctypes.CDLL(sys.argv[1]).keep
    keep.argtypes = [ctypes.py_object]
    keep(made)
    made.extend({"user": "user:%d" % number, "id": number} for number in range(20000))
fill()
os.abort()
"""
_SPREAD = """
import os
class User:
    __slots__ = ("name", "id")
    def __init__(self, id):
        self.name, self.id = "the name of user %012d" % id, id % 100
for number in range(16):
    globals()["users%d" % number] = [User(2500 * number + each) for each in range(2500)]
os.abort()
"""
_HOLDING = """
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) static void die(void) { abort(); }
int main(void)
{
	register void *block asm("rbx") = malloc(3 << 20);
	memset(block, 1, 3 << 20);
	asm volatile("" : "+r"(block));
	die();
	asm volatile("" : : "r"(block));
}
"""
