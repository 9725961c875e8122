"""Greenlets that wait, compared with what their frames said just before, and with gr_frame."""

from __future__ import annotations

import random
import struct
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from dmods.commands._python_greenlets import room
from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.greenlets import greenlet_at
from fixtures import answers, pythons

_NEWEST = "3.2.4"  # of greenlet: the newest that has wheels for the host, 3.12 and 3.14
_PAIRS = [
    ("host", _NEWEST),
    ("3.9", "1.1.3.post0"),
    ("3.9", "2.0.2"),
    ("3.10", "1.1.3.post0"),
    ("3.10", "2.0.2"),
    ("3.11", "1.1.3.post0"),
    ("3.11", "2.0.2"),
    ("3.11", "3.5.6"),
    ("3.12", "3.0.3"),
    ("3.12", _NEWEST),
    ("3.13", "3.1.1"),
    ("3.13", "3.5.6"),
    ("3.14", _NEWEST),
    ("3.14", "3.5.6"),
    ("3.15", "3.5.6"),
]


def made(version: str, greenlet: str, *arguments: str) -> pythons.PythonCore:
    return pythons.core(version, "greenlets", arguments=arguments, packages=[f"greenlet=={greenlet}"])


@pytest.mark.quick(f"told-host-{_NEWEST}")
@pytest.mark.parametrize(("version", "greenlet"), _PAIRS)
@pytest.mark.parametrize("asked", ["told", "asked"])
def test_greenlets_wait_where_they_say(version: str, greenlet: str, asked: str) -> None:
    one = made(version, greenlet, *(["asked"] if asked == "asked" else []))
    answer = answers.typed("pystack", *one.argv(), "--suspended")
    truth = {int(key) ^ pythons.HIDDEN: rows for key, rows in one.truth()["waiting"].items()}
    rows = answers.by_name(answer)["greenlets"]
    ours = {int(row["greenlet"], 16): row for row in rows}
    assert len(truth) == len(rows) > 200
    assert [row["problem"] for row in rows if row["problem"]] == []
    shown = {at: [[f["file"], f["line"], f["function"]] for f in row["frames"]] for at, row in ours.items()}
    assert shown == truth
    assert {row["type"] for row in rows} == {"greenlet.greenlet", "Worker", "Slotted"}
    assert answer["totals"]["greenlets"] == len(rows)
    # Those of one type that wait at the same lines are one group, and each is in one.
    groups = answers.by_name(answer)["greenlet_groups"]
    assert sum(row["count"] for row in groups) == len(truth)
    expected = Counter((ours[at]["type"], str(rows)) for at, rows in truth.items())
    assert (
        Counter(
            {
                (ours[int(g["greenlets"][0], 16)]["type"], str(truth[int(g["greenlets"][0], 16)])): g["count"]
                for g in groups
            }
        )
        == expected
    )
    assert [row["count"] for row in groups] == sorted((row["count"] for row in groups), reverse=True)


def test_text_has_a_group_once_with_its_frames() -> None:
    one = made("host", _NEWEST)
    printed = answers.printed("pystack", *one.argv(), "--suspended", "--limit", "1")
    assert "96 greenlets of type greenlet.greenlet (0x" in printed
    assert "program.py:35" in printed
    assert "more frames: --limit)" in printed


def test_damaged_greenlets_give_an_answer(tmp_path: Path) -> None:
    one = made("host", _NEWEST)
    target = one.target()
    python = find_python(target).python
    heap = find_heap(target)
    assert python is not None
    addresses = [int(key) ^ pythons.HIDDEN for key in one.truth()["waiting"]][::8]
    places = []
    for address in addresses:
        found = greenlet_at(python, address, partial(room, heap))
        assert found is not None
        places += [address, python.objects.words.at(address + 32) or 0, *(frame.address for frame in found.frames)]
    offsets = [offset for at in places if (offset := one.place(at)) is not None]
    assert len(offsets) > len(addresses)
    data, dice, answered = one.core.read_bytes(), random.Random(5), 0
    for _ in range(20):
        changed = bytearray(data)
        for offset in offsets:
            value = dice.choice([0, 1, 1 << 63, (1 << 64) - 1, dice.choice(places), dice.getrandbits(47)])
            struct.pack_into("<Q", changed, offset + 8 * dice.randrange(30), value)
        (tmp_path / "core").write_bytes(changed)
        damaged = find_python(CoreFile(str(tmp_path / "core"))).python
        assert damaged is not None
        answered += sum(greenlet_at(damaged, address, lambda _at: 240) is not None for address in addresses)
    assert answered > 0
