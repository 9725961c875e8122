"""The everyday commands on the quick guest, on damaged lists, and on dumps that lack pages.

tests/kernel/test_busy.py compares each with what the kernel of a busy guest said of itself.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest

from dmods.cli.drgn_starter import FOR_KERNELS
from dmods.command import KERNEL, command_modules, find_command
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.system.reading import Reader
from drgnext.kernel.system.xarrays import XArray
from fixtures import answers, kernel
from tests.fuzz import vmcores
from tests.kernel.crashed import open_program

GUEST = ("6.1", "null")
LINES = {
    "dentries": "", "dmesg": "", "files": "1", "inflight": "-a", "irq": "-a", "locks": "-a", "meminfo": "",
    "memcgs": "", "mounts": "", "netdev": "", "ps": "-T", "runq": "", "sockets": "", "swapinfo": "", "timers": "",
    "vmalloc": "", "workqueues": "-a",
}  # fmt: skip


@cache
def opened() -> tuple[kernel.Guest, Kernel]:
    guest = kernel.guest(*GUEST)
    return guest, Kernel(open_program(guest))


def test_every_command_on_the_guest() -> None:
    guest, target = opened()
    said = {name: answers.answer(target, name, *words.split(), side=KERNEL) for name, words in LINES.items()}
    assert {name: answer["notes"] for name, answer in said.items() if answer["notes"]} == {}
    rows = {name: answer["tables"][0]["rows"] for name, answer in said.items()}
    threads = guest.truth["threads_pid"]
    assert sum(row["tgid"] == threads for row in rows["ps"]) == 1 + sum(
        count for name, count in guest.truth.items() if name.startswith("threads_in_")
    )
    (leader,) = (row for row in rows["ps"] if row["pid"] == threads)
    assert (leader["ppid"], leader["state"]) == (1, "S")
    assert any("Kernel panic" in row["text"] for row in rows["dmesg"])
    before = dict(line.split(":") for line in (guest.oracle / "meminfo").read_text().splitlines())
    assert [row["name"] for row in rows["meminfo"]] == list(before)
    fixed = ("MemTotal", "SwapTotal", "CommitLimit", "VmallocTotal", "HugePages_Total", "Hugetlb", "Mlocked")
    found = {row["name"]: row["value"] for row in rows["meminfo"]}
    assert [found[name] for name in fixed] == [int(before[name].split()[0]) for name in fixed]
    assert said["swapinfo"]["totals"]["used"] == guest.truth["swap_kilobytes"] << 10
    assert {"/", "/proc", "/tmp", "/mnt"} <= {row["target"] for row in rows["mounts"]}
    assert {"vda", "zram0"} <= {row["disk"] for row in rows["inflight"]}
    assert {row["name"] for row in rows["netdev"]} == {"lo"}
    used = int(before["VmallocUsed"].split()[0]) << 10  # the areas' pages
    assert 0 < said["vmalloc"]["totals"]["pages"] << 12 <= used
    tables = {table["name"]: table["rows"] for table in said["workqueues"]["tables"]}
    assert {"events", "events_highpri", "mm_percpu_wq"} <= {row["workqueue"] for row in tables["queues"]}


def test_options_are_not_those_of_the_shell() -> None:
    """`dmods NAME DUMP` adds options of its own. argparse refuses one that is there twice."""
    names = [name for name, side, _module in command_modules() if side == KERNEL]
    assert "memstat" in names
    for name in names:
        find_command(name, KERNEL).parser(after=FOR_KERNELS)


class Words:
    """A Memory of some words, for lists."""

    def __init__(self, words: dict[int, int]) -> None:
        self._words = words

    def word(self, address: int) -> int | None:
        return self._words.get(address)

    def read(self, address: int, size: int) -> bytes:
        data = b""
        while len(data) < size and (address + len(data)) & ~7 in self._words:
            at = address + len(data)
            data += self._words[at & ~7].to_bytes(8, "little")[at & 7 :]
        return data[:size]


@pytest.fixture
def reader() -> Reader:
    return Reader(opened()[1])


HEAD, ONE, TWO = 0xFFFF888000000000, 0xFFFF888000000100, 0xFFFF888000000200


@pytest.mark.parametrize(
    ("words", "found", "notes"),
    [
        ({HEAD: ONE, ONE: TWO, TWO: HEAD}, [ONE, TWO], 0),
        ({HEAD: HEAD}, [], 0),
        ({HEAD: ONE, ONE: TWO, TWO: ONE}, [ONE, TWO], 1),
        ({HEAD: ONE, ONE: TWO}, [ONE, TWO], 1),
        ({}, [], 1),
    ],
)
def test_lists(reader: Reader, words: dict[int, int], found: list[int], notes: int) -> None:
    reader.memory = Words(words)  # type: ignore[assignment]
    assert list(reader.linked(HEAD, "things")) == found
    assert len(reader.notes) == notes


def test_hash_chains(reader: Reader) -> None:
    reader.memory = Words({ONE: TWO, TWO: 0})  # type: ignore[assignment]
    assert list(reader.hashed(ONE, "things")) == [ONE, TWO]
    reader.memory = Words({ONE: TWO, TWO: 5})  # type: ignore[assignment]
    assert list(reader.hashed(ONE, "things")) == [ONE, TWO]
    assert reader.notes == []
    reader.memory = Words({ONE: TWO, TWO: ONE})  # type: ignore[assignment]
    assert list(reader.hashed(ONE, "things")) == [ONE, TWO]
    assert "again" in reader.notes[0]


class Pointer:
    """The part of a drgn.Object that a walk of a tree or an xarray needs."""

    def __init__(self, value: int) -> None:
        self._value = value
        self.rb_node = self.xa_head = self

    def value_(self) -> int:
        return self._value


def test_trees(reader: Reader) -> None:
    right, left = 8, 16
    whole = {ONE + left: TWO, ONE + right: 0, TWO + left: 0, TWO + right: 0}
    reader.memory = Words(whole)  # type: ignore[assignment]
    root: Any = Pointer(ONE)
    assert list(reader.tree(root, "things")) == [TWO, ONE]
    assert reader.notes == []
    reader.memory = Words({**whole, TWO + right: ONE})  # type: ignore[assignment]
    assert list(reader.tree(root, "things")) == [TWO]
    assert "again" in reader.notes[0]


def test_xarrays(reader: Reader) -> None:
    node = reader.prog.type("struct xa_node")
    shift, slots = node.member("shift").bit_offset // 8, node.member("slots").bit_offset // 8
    assert shift == 0
    empty = {at + slots + 8 * slot: 0 for at in (ONE << 4, TWO << 4) for slot in range(64)}
    first, second = ONE << 4 & (1 << 64) - 1, TWO << 4 & (1 << 64) - 1
    empty = {at & (1 << 64) - 1: 0 for at in empty}
    inner = {**empty, first: 6, first + slots: second + 2, second: 0, second + slots + 24: HEAD}
    reader.memory = Words(inner)  # type: ignore[assignment]
    array: Any = Pointer(first + 2)
    assert list(XArray(reader, array, "things").entries()) == [(3, HEAD)]
    assert reader.notes == []
    reader.memory = Words({**inner, second: 6})  # type: ignore[assignment]
    assert list(XArray(reader, array, "things").entries()) == []
    assert "damaged" in reader.notes[0]


@pytest.mark.thorough("it opens a dump fifteen times")
@pytest.mark.parametrize("seed", range(15))
def test_damaged_structures(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of what the commands follow are overwritten. Every command ends, and says what it could not read."""
    guest, target = opened()
    touched: set[int] = set()
    pointer = Reader.pointer
    monkeypatch.setattr(Reader, "pointer", lambda self, name, at: touched.add(at & ~7) or pointer(self, name, at))
    dice = random.Random(seed)
    prog = open_program(guest)
    for name, words in LINES.items():
        touched.clear()
        answers.report(target, name, *words.split(), side=KERNEL)
        known = sorted(at for at in touched if at >> 63)
        for _each in range(8 if known else 0):
            at = dice.choice(known) + 8 * dice.randrange(30) & ~7
            values = 0, dice.choice(known), at, (1 << 64) - 1, dice.getrandbits(64), dice.getrandbits(32)
            data = dice.choice(values).to_bytes(8, "little")
            prog.add_memory_segment(at, 8, lambda _at, size, offset, _physical, data=data: data[offset : offset + size])
    for name, words in LINES.items():
        assert vmcores._run(prog, name, tuple(words.split())).startswith("answered")


@pytest.mark.thorough("it compresses a dump")
def test_a_dump_without_user_and_cache_pages() -> None:
    """makedumpfile -d 31 leaves them out. The kernel's own structures are all there."""
    guest, target = opened()
    filtered = Kernel(open_program(guest, dump=guest.kdump))
    for name, words in LINES.items():
        whole, part = (answers.answer(each, name, *words.split(), side=KERNEL) for each in (target, filtered))
        assert part["tables"] == whole["tables"], name
