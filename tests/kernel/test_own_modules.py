"""A kernel dump without any file: the symbols and types of its modules are those of the modules' files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import answers, kernel
from fixtures.kernel import Guest
from tests.kernel.test_carried import PREPARE, RELEASES, flat, in_drgn

#: Structures of a module each, which its kernel does not have.
OF_MODULES = ["struct zram", "struct zs_pool", "struct virtio_blk", "struct loop_cmd", "struct fw_cfg_file"]


def with_and_without(guest: Guest, folder: Path, script: str) -> tuple[Any, Any]:
    """Return what a script says without any file, and with vmlinux and the modules with their debug information."""
    file = folder / "script.py"
    file.write_text(PREPARE + script)
    files = [word for path in (guest.vmlinux, *guest.modules) for word in ("-s", str(path))]
    return in_drgn(guest, file), in_drgn(guest, file, *files)


TYPES = f"""
def members(type_):
    return [(m.name, m.type.type_name(), m.bit_offset, m.bit_field_size) for m in type_.members]
found = {{}}
for name in {OF_MODULES!r}:
    try:
        type_ = prog.type(name)
    except LookupError:
        continue
    found[name] = [type_.size, members(type_)]
print(json.dumps(found))
"""


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.thorough("it loads the debug information of all modules")
def test_structures_of_modules_are_those_of_their_files(release: str, tmp_path: Path) -> None:
    own, theirs = with_and_without(kernel.guest(release, "null"), tmp_path, TYPES)
    assert len(theirs) >= 4
    assert {name: flat(json.dumps(one)) for name, one in own.items()} == {
        name: flat(json.dumps(one)) for name, one in theirs.items()
    }


SYMBOLS = """
from drgnext.kernel.dump.own_types import carried
names = {names!r}
if names is None:
    names = [(module.name, row[2]) for module in carried.outcome(prog).modules for row in module.symbols.rows()]
of = {{module.name: module.address_ranges for module in prog.modules()}}
def inside(module, address):
    return any(start <= address < end for start, end in of[module])
found = []
for module, name in names:
    at = [one for one in (prog.symbols(name) or []) if inside(module, one.address)]
    found.append((module, name, sorted((one.address, one.size) for one in at)))
print(json.dumps(found))
"""


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.thorough("it loads the debug information of all modules")
def test_symbols_of_modules_are_those_of_their_files(release: str, tmp_path: Path) -> None:
    guest = kernel.guest(release, "null")
    file = tmp_path / "script.py"
    file.write_text(PREPARE + SYMBOLS.format(names=None))
    own = in_drgn(guest, file)
    file.write_text(PREPARE + SYMBOLS.format(names=[row[:2] for row in own]))
    files = [word for path in (guest.vmlinux, *guest.modules) for word in ("-s", str(path))]
    theirs = in_drgn(guest, file, *files)
    known = {(module, name): at for module, name, at in theirs}
    assert len(own) > 400
    assert "dmods_guest" in {module for module, *_rest in own}
    # drgn gives the size 0 to a symbol of assembly, and kallsyms has it end at the next one.
    plain = {key: dict(at) for key, at in known.items()}
    differ = [
        (module, name, at, plain[module, name])
        for module, name, at in own
        if any(plain[module, name].get(address) not in (size, 0) for address, size in at)
    ]
    # Linker scripts of the final link define a few (__stop_alloc_tags), which the files lack.
    defined_later = [row for row in differ if not row[3]]
    assert [row for row in differ if row[3]] == []
    assert len(defined_later) < 10


def test_doctor_names_a_module_without_types() -> None:
    """The guest's own module is built without BTF."""
    done = answers.dmods("doctor", kernel.guest("6.1", "null").vmcore)
    assert done.returncode == 0
    assert "12 loaded: 11 with types that they carry (BTF), 1 without types (dmods_guest)\n" in done.stdout
