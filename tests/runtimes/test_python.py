"""CPython's frames and objects, compared with what the program said at the instant before it died."""

from __future__ import annotations

import contextlib
import random
import struct
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.heap.heap import find_heap
from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.lines import line_of
from fixtures import answers, pythons

pytestmark = pytest.mark.thorough("it needs Debian's Pythons")
VERSIONS = pytest.mark.parametrize("version", pythons.VERSIONS)
BUILDS = pytest.mark.parametrize("version", [*pythons.VERSIONS, *pythons.PYDEBUG])


@BUILDS
def test_stacks_are_those_of_faulthandler(version: str) -> None:
    made = pythons.core(version, "stacks")
    target = made.target()
    found = answers.by_name(answers.typed("pystack", *made.argv()))["threads"]
    registers = {thread.tid: thread.registers[target.arch.thread_pointer] for thread in target.threads()}
    ours = {
        registers[row["thread"]]: [(f["file"], str(f["line"]), f["function"]) for f in row["frames"]] for row in found
    }
    assert ours == made.stacks()
    assert len(ours) == 4
    assert found[0]["thread"] == target.threads()[0].tid


@VERSIONS
def test_python_frames_stand_between_those_of_c(version: str) -> None:
    made = pythons.core(version, "stacks")
    target = made.target()
    truth = made.stacks()
    shown = answers.by_name(answers.typed("stacks", *made.argv()))["stacks"]
    assert sum(row["count"] for row in shown) == len(truth)
    for row in shown:
        merged = [each for frame in row["stack"] for each in frame.get("python", ())]
        (tid,) = row["tids"]
        thread = next(one for one in target.threads() if one.tid == tid)
        expected = truth[thread.registers[target.arch.thread_pointer]]
        assert [(f["file"], str(f["line"]), f["function"]) for f in merged] == expected
    # sorted() is between Dies.run and Dies.key.
    (died,) = answers.by_name(answers.typed("findstack", *made.argv()))["threads"]
    places = {each["function"]: n for n, frame in enumerate(died["stack"]) for each in frame.get("python", ())}
    assert places["run"] - places["key"] > 1


@BUILDS
def test_objects_are_those_of_the_collector(version: str) -> None:
    made = pythons.core(version, "objects")
    answer = answers.typed("pyobjects", *made.argv(), "--top", 100000)
    rows = {int(row["type_address"], 16): row for row in answers.by_name(answer)["types"]}
    truth = made.types()
    assert len(truth) > 50
    ours = {at: (rows[at]["tracked"], rows[at]["tracked_bytes"]) for at in truth if at in rows}
    # A file has a buffer of its own, which is not among those that are counted.
    expected = {at: row[1:] for at, row in truth.items() if not row[0].startswith("_io.Buffered") and row[1]}
    different = {truth[at][0]: (ours.get(at), row) for at, row in expected.items() if ours.get(at) != row}
    assert different == {}


@VERSIONS
def test_sizes_of_large_objects(version: str) -> None:
    """They lie in blocks of malloc, and are there with the size that sys.getsizeof says."""
    made = pythons.core(version, "large")
    truth = made.truth()
    assert len(truth) == 14
    for kind, objects in truth.items():
        answer = answers.answer(made.target(), "pyobjects", "--type", kind, "--top", "1000000")
        ours = {int(row["address"], 16): row["bytes"] for row in answers.by_name(answer)["objects"]}
        expected = {hidden ^ pythons.HIDDEN: size for hidden, size in objects}
        assert {at: ours.get(at) for at in expected} == expected, kind


@VERSIONS
def test_interpreters_beside_the_main_one(version: str) -> None:
    """Each has its own thread, objects and, from 3.12 on, pools."""
    made = pythons.core(version, "subinterpreters")
    truth = made.truth()
    answer = answers.typed("pyobjects", *made.argv(), "--top", 100000)
    rows = {int(row["type_address"], 16): row for row in answers.by_name(answer)["types"]}
    told = [truth["main"], *truth["others"]]
    assert [rows[one["type"]]["tracked"] for one in told] == [one["nodes"] for one in told]
    stacks = [row["frames"] for row in answers.by_name(answers.typed("pystack", *made.argv()))["threads"]]
    places = [(frames[0]["file"], frames[0]["line"], frames[0]["function"]) for frames in stacks]
    for one in truth["others"]:
        assert (one["file"], one["line"], "rests_here") in places
    heap = find_heap(made.target())
    leaks = heap.leaks()
    assert (leaks.direct_count, heap.notes) == (0, [])


@VERSIONS
def test_values_of_objects(version: str) -> None:
    made = pythons.core(version, "objects")
    listed = answers.by_name(answers.typed("pyobjects", *made.argv(), "--type", "Node", "--top", 5))["objects"]
    assert len(listed) == 5
    texts = answers.by_name(answers.typed("pyobjects", *made.argv(), "--type", "str", "--top", 100000))["objects"]
    assert "'node 999'" in {row["value"] for row in texts}
    numbers = answers.by_name(answers.typed("pyobjects", *made.argv(), "--type", "int", "--top", 100000))["objects"]
    values = {row["value"] for row in numbers}
    assert str(10**20) in values
    at = next(row["address"] for row in texts if row["value"] == "'node 999'")
    said = answers.by_name(answers.typed("whatis", *made.argv(), at))["python"][0]
    assert (said["type"], said["value"]) == ("str", "'node 999'")


@VERSIONS
def test_a_program_without_python_has_none(version: str) -> None:
    made = pythons.core(version, "stacks")
    target = made.target()
    assert find_python(target).refusal is None
    # Without its file, only CPython's own table of offsets tells where it is.
    alone = find_python(CoreFile(str(made.core), sysroot="/nonexistent"))
    if version in ("3.9", "3.10", "3.11", "3.12"):
        assert alone.python is None
        assert "--sysroot" in _refusal(CoreFile(str(made.core), sysroot="/nonexistent"))
    else:
        assert alone.python is not None
        assert len(alone.python.threads) == 4


def _refusal(target: CoreFile) -> str:
    with pytest.raises(UserError) as refused:
        answers.report(target, "pystack")
    return str(refused.value)


@VERSIONS
def test_damage_gives_an_answer(version: str, tmp_path: Path) -> None:
    """Damage the structures of the interpreter at random: every command still answers, or refuses in one line."""
    made = pythons.core(version, "stacks")
    target = made.target()
    python = find_python(target).python
    assert python is not None
    places = [python.runtime, *python.interpreters]
    for thread in python.threads:
        places.append(thread.address)
        for frame in python.stack(thread).frames:
            places += [frame.address, frame.code.address]
    offsets = {at: made.place(at) for at in places}
    copy = tmp_path / "core"
    data = bytearray(made.core.read_bytes())
    dice = random.Random(1)
    for _ in range(30):
        changed = []
        for _ in range(dice.randint(1, 4)):
            at = dice.choice(places)
            offset = offsets[at]
            if offset is None:
                continue
            offset += 8 * dice.randrange(24)
            changed.append((offset, bytes(data[offset : offset + 8])))
            value = dice.choice([0, 1, 1 << 63, (1 << 64) - 1, dice.choice(places), at, dice.getrandbits(47)])
            data[offset : offset + 8] = struct.pack("<Q", value)
        copy.write_bytes(data)
        damaged = CoreFile(str(copy), sysroot=str(made.sysroot))
        with contextlib.suppress(UserError):
            answers.answer(damaged, "pystack")
        answers.answer(damaged, "stacks")
        for offset, before in reversed(changed):
            data[offset : offset + 8] = before


def test_line_tables() -> None:
    # 3.9: Objects/lnotab_notes.txt; 3.10: its successor; 3.11: Objects/locations.md
    lnotab = bytes([0, 1, 6, 1, 44, 5, 6, 256 - 3])
    assert [line_of("lnotab", lnotab, 10, at) for at in (-1, 0, 5, 6, 49, 50, 56, 900)] == [
        10, 11, 11, 12, 12, 17, 14, 14,
    ]  # fmt: skip
    assert [line_of("linetable", bytes([4, 0, 2, 128, 6, 255]), 10, at) for at in (0, 3, 4, 6, 12)] == [
        10, 10, None, 9, None,
    ]  # fmt: skip
    # no columns, +2 lines, 2 units; one line, +1, 1 unit; none, 1 unit; long, -70 lines, 3 units
    table = bytes([0x80 | 13 << 3 | 1, 4, 0x80 | 11 << 3, 0, 0, 0x80 | 15 << 3, 0x80 | 14 << 3 | 2, 0x4D, 2, 0, 0, 0])
    assert [line_of("locations", table, 100, at) for at in (0, 2, 4, 6, 8, 12, 14)] == [
        102, 102, 103, None, 33, 33, None,
    ]  # fmt: skip
