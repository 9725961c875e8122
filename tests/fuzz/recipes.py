"""Damage as data: a few named places and the values to write.

It is made from a seed, and is small enough to be a test.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Optional

from tests.fuzz.fields import Fields, Place

_EDGES = (
    0,
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    17,
    24,
    0x20,
    0x21,
    0x25,
    0x31,
    0x1000,
    0x21000,
    1 << 26,
    1 << 31,
    (1 << 32) - 1,
    1 << 36,
    1 << 40,
)
_FAR = (
    1 << 46,
    (1 << 47) - 8,
    1 << 47,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 4096,
    (1 << 64) - 16,
    (1 << 64) - 8,
    (1 << 64) - 1,
)


@dataclass(frozen=True)
class Edit:
    """A write at the place called ``name``. ``how`` says which value it gets.

    "set": ``value``. "add": the place's own value plus ``value``. "address": the address of the place ``other`` plus
    ``value``. "like": the content of ``other`` plus ``value``.
    """

    name: str
    how: str
    value: int
    other: str = ""


@dataclass(frozen=True)
class Recipe:
    """Damage of one core.

    ``dump`` is one of ``driver.DUMPS``; ``keep`` is the part of the core that is left when it is cut.

    ``why`` says which defect it once found.
    """

    dump: str
    edits: tuple[Edit, ...] = ()
    keep: Optional[float] = None
    why: str = field(default="", compare=False)

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Recipe:
        made = json.loads(path.read_text())
        return cls(made["dump"], tuple(Edit(**edit) for edit in made["edits"]), made["keep"], made["why"])


def invent(fields: Fields, dump: str, seed: str) -> Recipe:
    """Return the damage of that seed."""
    dice = random.Random(seed)
    edits = []
    kinds = sorted(fields.kinds)
    favourite = dice.choice(kinds)
    for _ in range(dice.choice((1, 1, 2, 3, 6, 20))):
        kind = favourite if dice.random() < 0.7 else dice.choice(kinds)
        name = dice.choice(fields.kinds[kind]) if dice.random() < 0.95 else f"byte.{dice.randrange(fields.size)}"
        edits.append(_edit(fields, dice, name))
    keep = dice.random() if dice.random() < 0.03 else None
    return Recipe(dump, tuple(edits), keep)


def _edit(fields: Fields, dice: random.Random, name: str) -> Edit:
    how = dice.choice(("set", "set", "add", "address", "like"))
    if how == "set":
        return Edit(
            name, how, dice.choice((dice.choice(_EDGES), dice.choice(_FAR), dice.getrandbits(dice.choice((8, 32, 64)))))
        )
    near = dice.choice((0, 1, -1, 4, 8, -8, 16, -16, 32, 4096, -4096, 1 << dice.randrange(40)))
    if how == "add":
        return Edit(name, how, near)
    kind = dice.choice((name.partition(".")[0], dice.choice(sorted(fields.kinds))))
    return Edit(name, how, dice.choice((0, 0, 0, near)), dice.choice(fields.kinds.get(kind, [name])))


def _bytes(fields: Fields, edit: Edit, place: Place, exe: bytes) -> bytes:
    value = edit.value
    if edit.how == "add":
        value += fields.value(place, exe)
    elif edit.how == "address":
        value += fields.find(edit.other).address
    elif edit.how == "like":
        value += fields.value(fields.find(edit.other), exe)
    return (value % (1 << (8 * place.width))).to_bytes(place.width, "little")


def patches(
    fields: Fields, recipe: Recipe, exe: bytes
) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]], Optional[int]]:
    """Return the writes to the core and to the program as (offset, bytes), and the core's length when it is cut."""
    core, program = [], []
    for edit in recipe.edits:
        place = fields.find(edit.name)
        (program if place.exe else core).append((place.offset, _bytes(fields, edit, place, exe)))
    return core, program, None if recipe.keep is None else int(recipe.keep * fields.size)
