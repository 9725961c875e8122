"""musl's malloc where the program, or chance, has overwritten it."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dmods import _engine
from dmods.corefile.target import CoreFile
from dmods.errors import DmodsError
from dmods.heap.heap import find_heap
from dmods.modules.data import module_data
from dmods.modules.elf import parse
from fixtures import answers, judge, musls
from fixtures.heaps import others

pytestmark = pytest.mark.thorough("it needs musl")
TEXTS = {
    "overflow": "was written beyond its end: the byte at {beyond:#x} is 0x41, not 0",
    "overflow-slack": "was written beyond its end: the byte at {beyond:#x} is 0x41, not 0",
    "header": "the header of the block at {at:#x} is overwritten",
    "group": "the group at {at:#x} does not point back to its meta",
}
DAMAGES = 100


@pytest.mark.parametrize("variant", ["dynamic", "static"])
@pytest.mark.parametrize("mode", TEXTS)
def test_one_place_is_broken(mode: str, variant: str) -> None:
    made = musls.take("muslbroken", mode=mode, variant=variant)
    at = made.truth.facts["broken"]
    heap = find_heap(judge.open_core(made))
    assert not judge.problems(heap, made.truth), "no leak, and every size but that of the broken block"
    rows = answers.by_name(answers.typed("heapcheck", made.core))["lists"]
    size = made.truth.blocks[at].size if at in made.truth.blocks else 0
    assert [row["at"] for row in rows] == [hex(at)]
    assert TEXTS[mode].format(at=at, beyond=at + size) in rows[0]["what"]


def test_the_secret_is_no_pointer(tmp_path: Path) -> None:
    """The random number of mallocng leads into a leaked block, as it does by chance in a 32-bit process."""
    made = musls.take("sizes", variant="static")
    target = judge.open_core(made)
    data = [(start, end) for start, end in module_data(target)]
    ((context, secret, area, last),) = _engine.find_mallocngs(target.image(), target.arch.word, data)
    lost = next(block for block in made.truth.blocks.values() if block.state == "direct" and block.size > 5000)
    places = [context, area]
    while area != last:
        area = int.from_bytes(target.image().read(area + 8, 8), "little")
        places.append(area)
    copy = tmp_path / "core"
    shutil.copyfile(made.core, copy)
    with open(copy, "r+b") as stream:
        for place in places:
            stream.seek(_offset(target, place))
            assert stream.read(8) == secret.to_bytes(8, "little")
            stream.seek(_offset(target, place))
            stream.write((lost.address + 16).to_bytes(8, "little"))
    heap = find_heap(judge.open_core(replace(made, core=copy)))
    assert not judge.problems(heap, made.truth)


def _words(target: CoreFile) -> list[int]:
    """Return the addresses of the words of the allocator: its context, metas, and headers of groups and slots."""
    heap = find_heap(target)
    found = [at for start, end in module_data(target) for at in range(start, end, 8)][:4000]
    for start, end in others(heap)[0].owned:
        found.extend(range(start, min(end, start + 4096), 8))
    return found


def _offset(target: CoreFile, address: int) -> int:
    with open(target.path, "rb") as stream:
        loads = parse(lambda at, size: os.pread(stream.fileno(), size, at), "core").loads()
    found = (load for load in loads if load.vaddr <= address < load.vaddr + load.filesz)
    return next((load.offset + address - load.vaddr for load in found), -1)


def test_random_damage(tmp_path: Path) -> None:
    """Every damaged core ends with an answer."""
    made = musls.take("muslbroken", mode="overflow", variant="static")
    target = judge.open_core(made)
    places, chance = _words(target), random.Random(16)
    values = [0, 1, 0xFFFFFFFFFFFFFFFF, 0x4141414141414141, *chance.sample(places, 50)]
    whole = made.core.read_bytes()
    answered = 0
    for number in range(DAMAGES):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            at = _offset(target, chance.choice(places))
            if at >= 0:
                value = chance.choice(values)
                data[at : at + 8] = (
                    value if number % 2 else value ^ int.from_bytes(data[at : at + 8], "little")
                ).to_bytes(8, "little")
        if number % 10 == 9:
            del data[chance.randrange(len(data)) :]
        core = tmp_path / "core"
        core.write_bytes(data)
        try:
            damaged = CoreFile(str(core))
            for command in ("findleaks", "heapcheck", "malloc_stats", "heapsizes"):
                answers.report(damaged, command)
            answered += 1
        except DmodsError:
            pass  # it says what is wrong
    assert answered > DAMAGES // 4
    shutil.rmtree(tmp_path)
