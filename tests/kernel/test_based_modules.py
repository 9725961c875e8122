"""A module that brings a base of its own for its types: the kernel has moved these onto its own types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.kernel import based
from fixtures.kernel.based import Based
from tests.kernel.test_carried import PREPARE, flat, in_drgn

SCRIPT = """
from drgn import Object
def members(type_):
    return [(m.name, m.type.type_name(), m.bit_offset, m.bit_field_size) for m in type_.members]
thing = Object(prog, "struct based_thing", address=prog.symbol("based_thing").address)
values = [thing.state.format_(), int(thing.flags), int(thing.more), thing.name.string_().decode()]
values.append(int(thing.parts[2].high))
owner = thing.parts[1].owner
types = [prog.type(name) for name in ("struct based_thing", "struct based_part")]
print(json.dumps({
    "types": [[type_.size, members(type_)] for type_ in types],
    "inner": [members(thing.timer.type_), members(thing.work.work.type_), members(owner[0].se.type_)],
    "values": [*values, owner.comm.string_().decode()],
}))
"""


@pytest.mark.thorough("it needs a guest of a new kernel")
@pytest.mark.parametrize(
    "release", ["6.12", pytest.param("sid", marks=pytest.mark.seldom("the same of another kernel"))]
)
def test_types_with_a_base_are_those_of_the_file(release: str, tmp_path: Path) -> None:
    guest = based.guest(release)
    assert b".BTF.base\0" in guest.module.read_bytes()
    own, theirs = (asked(guest, tmp_path, files) for files in ([], [guest.vmlinux, guest.module]))
    assert own["values"] == ["(enum based_state)BASED_BUSY", 5, 1234, "based", 42, "init"]
    assert flat(json.dumps(own)) == flat(json.dumps(theirs))
    assert len(own["inner"][2]) > 10


def asked(guest: Based, folder: Path, files: list[Path]) -> Any:
    script = folder / "script.py"
    script.write_text(PREPARE + SCRIPT)
    return in_drgn(guest, script, *(word for path in files for word in ("-s", str(path))))
