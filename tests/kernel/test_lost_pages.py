"""Dumps that lack the second page of each slab, as makedumpfile makes them of Linux 7.1 and later.

The witness is the whole dump of the same guest: dmods reads all its slabs there. In the quick run, the pages are hidden
from the engine in the dump of an older kernel.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dmods._engine import Memmap, Physical
from drgnext.kernel.dump import lost_pages
from drgnext.kernel.dump.cut_lists import CutLists, linked_backwards
from drgnext.kernel.slabs import leaks, objects
from drgnext.kernel.slabs.objects import SlabObjects
from fixtures import answers, kernel
from tests.kernel import crashed
from tests.kernel.memory import Changed, open_kernel

NOTE = "the dump lacks the second page of each slab that has several: makedumpfile up to 1.7.8"


def rows(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["cache"]: row for row in answers.by_name(answer)["caches"]}


def check_bounds(whole: dict[str, Any], cut: dict[str, Any]) -> None:
    """Check that counts which are called exact are right, and that the rest are bounds."""
    known, told = rows(whole), rows(cut)
    assert known.keys() == told.keys()
    exact = [name for name, row in told.items() if row["exact"]]
    assert 20 < len(exact) < len(told)
    figures = ("in_use", "free", "slabs", "pages")
    assert [[told[name][each] for each in figures] for name in exact] == [
        [known[name][each] for each in figures] for name in exact
    ]
    bounds = told.keys() - set(exact)
    assert {name for name in bounds if told[name]["bound"] != "in use at most, free at least"} == set()
    assert {name for name in bounds if told[name]["in_use"] < known[name]["in_use"]} == set()
    assert {name for name in bounds if told[name]["free"] > known[name]["free"]} == set()
    assert [name for name in bounds if told[name]["in_use"] > known[name]["in_use"]]
    assert (whole["totals"]["exact"], cut["totals"]["exact"]) == (True, False)


@pytest.fixture
def changed() -> Iterator[Changed]:
    """Yield a guest's page array, of which pages can be hidden."""
    found = Changed("6.1")
    array = found.array
    memmap, gathered, notes = array._memmap, array._gathered, list(array.notes)
    yield found
    array._memmap, array._gathered, array.notes[:] = memmap, gathered, notes
    objects._known.clear()
    leaks._known.clear()


def test_hidden_pages_are_missing_and_not_damaged(changed: Changed) -> None:
    array, subject = changed.array, open_kernel(changed.guest)
    slabs = SlabObjects(subject, array=array)
    objects._known[:] = [subject, slabs]
    whole = crashed.ask(subject, "kmastat")
    first = slabs.description["direct_map"]
    for cache in slabs.caches:
        for address in slabs.walk(cache, free=False):
            found = slabs.engine.in_slab(address)
            if found is not None and found[1] > 1:
                changed.missing.add((found[0] - first >> 12) + 1)
    assert len(changed.missing) > 100
    subject.lost_pages = True
    array._memmap = Memmap(Physical.through(changed.read), array._tables, array.layout)
    array._gathered = False
    objects._known[:] = [subject, SlabObjects(subject, array=array)]
    check_bounds(whole, crashed.ask(subject, "kmastat"))
    check = crashed.ask(subject, "slabcheck")
    assert (check["totals"]["faults"], answers.by_name(check)["faults"]) == (0, [])
    assert not check["verdict"]["possible"]
    told = crashed.ask(subject, "findleaks")
    assert (told["totals"]["direct_count"], told["verdict"]["possible"]) == (0, False)
    assert "no object can be called leaked" in " ".join(told["notes"])


RELEASE = "sid"


@pytest.mark.parametrize("release", [RELEASE])
def test_a_dump_of_makedumpfile(release: str) -> None:
    guest = kernel.guest(release, "null")
    whole, cut = open_kernel(guest), open_kernel(guest, guest.dumped("-c", "-d", "31"))
    assert (whole.lost_pages, cut.lost_pages) == (False, True)
    assert [note for note in cut.notes if note.startswith(NOTE) and "makedumpfile -d 23" in note]
    check_bounds(crashed.ask(whole, "kmastat"), crashed.ask(cut, "kmastat"))
    assert rows(crashed.ask(cut, "kmastat"))["dmods_guest"]["in_use"] >= 2000  # fixtures/kernel/guest/dmods_guest.c
    assert crashed.ask(cut, "slabcheck")["totals"]["faults"] == 0
    assert crashed.ask(cut, "findleaks")["totals"]["direct_count"] == 0
    notes = crashed.ask(cut, "memcgs")["notes"]
    assert [note for note in notes if "damaged" in note or "no memory cgroups" in note] == []
    threads = [note for note in notes if "lists of threads lead into memory that the dump lacks" in note]
    assert len(threads) == 1


@pytest.mark.parametrize(("release", "level"), [("sid", "23"), ("6.12", "31")])
def test_a_dump_that_has_them(release: str, level: str) -> None:
    guest = kernel.guest(release, "null")
    subject = open_kernel(guest, guest.dumped("-c", "-d", level))
    assert not subject.lost_pages
    assert crashed.ask(subject, "kmastat")["totals"]["exact"]


def program(text: bytes) -> Any:
    """Return a drgn program that has only VMCOREINFO."""
    return {"VMCOREINFO": SimpleNamespace(string_=lambda: text)}


def dump(path: Path, level: int) -> str:
    """Write the headers of a compressed dump."""
    head = bytearray(8192)
    head[:12] = b"KDUMP   " + struct.pack("<i", 6)
    head[424:440] = struct.pack("<IiiI", 0, 4096, 1, 2)
    head[4096:4112] = struct.pack("<Qii", 0, level, 0)
    path.write_bytes(head)
    return str(path)


RENAMED = b"OSRELEASE=7.2\nOFFSET(page.compound_info)=8\n"
BEFORE = b"OSRELEASE=6.12\nOFFSET(page.compound_head)=8\n"


@pytest.mark.parametrize(
    ("text", "level", "said"), [(RENAMED, 31, True), (RENAMED, 8, True), (RENAMED, 23, False), (BEFORE, 31, False)]
)
def test_without_types_the_level_and_the_name_decide(tmp_path: Path, text: bytes, level: int, said: bool) -> None:
    note = lost_pages.maybe_lost_slab_pages(program(text), dump(tmp_path / "vmcore", level))
    assert (note is not None) == said
    if note is not None:
        assert re.match(rf"the dump may lack .* \(dump level {level}\); take the next dump .* -d 23", note)


@pytest.mark.parametrize(
    ("text", "there", "lost"),
    [
        (RENAMED, {16, 18, 19}, True),
        (RENAMED, {16, 17, 18, 19}, False),
        (RENAMED, {16}, False),  # the dump is cut there
        (RENAMED, {18, 19}, False),  # the first page decides nothing
        (BEFORE, {16, 18, 19}, False),
    ],
)
def test_the_slab_of_a_task_decides(monkeypatch: pytest.MonkeyPatch, text: bytes, there: set[int], lost: bool) -> None:
    monkeypatch.setattr(lost_pages, "_slabs_of_tasks", lambda _prog: iter([(16, 4)]))
    monkeypatch.setattr(lost_pages, "_is_there", lambda _prog, frame: frame in there)
    assert (lost_pages.lost_slab_pages(program(text), None) is not None) == lost


class Words:
    """Memory of words."""

    def __init__(self, words: dict[int, int]) -> None:
        self.words = words

    def word(self, address: int) -> int | None:
        return self.words.get(address)

    def read(self, address: int, size: int) -> bytes:
        raise NotImplementedError


def test_a_list_with_a_part_missing_is_read_from_both_ends() -> None:
    """0x100 is the head, and the dump lacks 0x400 of 0x200 to 0x600."""
    nodes = [0x100, 0x200, 0x300, 0x400, 0x500, 0x600]
    words = dict(zip(nodes, nodes[1:] + nodes[:1]))
    words.update({at + 8: before for at, before in zip(nodes, nodes[-1:] + nodes[:-1])})
    del words[0x400], words[0x408]
    memory = cast(Any, Words(words))
    assert list(linked_backwards(memory, 0x100, {0x100, 0x200, 0x300, 0x400}, 100)) == [0x500, 0x600]
    assert list(linked_backwards(memory, 0x100, {0x100, 0x200, 0x300}, 100)) == [0x400, 0x500, 0x600]
    words[0x608] = 0x600  # a ring without its head
    assert list(linked_backwards(memory, 0x100, {0x100}, 100)) == [0x600]


def test_many_lists_make_one_note() -> None:
    cut = CutLists()
    for start in (0x3000, 0x1000, 0x2000, 0x1000):
        cut.add("the list of threads", start)
    cut.add("the tree of timers", 0x50)
    assert cut.notes == [
        "3 lists of threads lead into memory that the dump lacks (one of them is at 0x1000): "
        "the rest of each is missing",
        "the tree of timers at 0x50 leads into memory that the dump lacks: the rest of it is missing",
    ]
