"""Write the Python and Rust mirrors of audit/format.h, or check them: scripts/audit-format [--check].

The compiler says where each field lies: the header is compiled with debug information for all of its types, and this
module reads the DWARF of the object. So no field and no constant of a mirror can differ from the header unnoticed.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Optional, Union

from elftools.dwarf.compileunit import CompileUnit
from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "audit" / "format.h"
PYTHON = ROOT / "dmods" / "records" / "audit_format.py"
RUST = ROOT / "engine" / "core" / "src" / "records" / "format.rs"
IN_PYTHON = ("thread", "range", "mapping", "root")  # the structures that Python reads
IN_RUST = ("node", "transaction")  # the entries that the engine reads; Python tells it where the tables are
PREFIX = "dmods_audit_"
TITLE = "The layout of the auditor's tables. Generated from audit/format.h by scripts/audit-format: do not edit."
CODES = {(1, False): "B", (2, False): "H", (4, False): "I", (8, False): "Q", (4, True): "i", (8, True): "q"}


class Text(NamedTuple):
    """An array of char."""

    size: int


class Integer(NamedTuple):
    """An integer type."""

    size: int
    signed: bool


class Field(NamedTuple):
    """A field of a structure; ``count`` is 0 where it is not an array. A str is the name of a structure."""

    name: str
    offset: int
    kind: Union[Text, Integer, str]
    count: int

    @property
    def reserved(self) -> bool:
        return "reserved" in self.name


class Structure(NamedTuple):
    """A structure of the header, without the prefix of its name."""

    name: str
    size: int
    fields: list[Field]


class Header(NamedTuple):
    """The constants and structures that the header defines."""

    magic: bytes
    constants: dict[str, int]
    structures: list[Structure]


# -- reading the header -----------------------------------------------------------------------------------------------


def read(header: Path = HEADER) -> Header:
    """Return the content of the header, as the compiler sees it."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "format.o"
        flags = ["-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types", "-x", "c", "-c"]
        subprocess.run(["gcc", *flags, "-o", output, header], check=True)
        with open(output, "rb") as file:
            (unit,) = ELFFile(file).get_dwarf_info().iter_CUs()
            constants = dict(_constants(unit))
            own = (die for die in _children(unit, "DW_TAG_structure_type") if _text(die).startswith(PREFIX))
            structures = [_structure(die) for die in own]
    macros = subprocess.run(["gcc", "-E", "-dM", "-x", "c", header], check=True, capture_output=True, text=True).stdout
    (magic,) = re.findall(r'^#define DMODS_AUDIT_MAGIC (".*")$', macros, re.MULTILINE)
    return Header(ast.literal_eval(magic).encode(), constants, structures)


def _children(unit: CompileUnit, tag: str) -> Iterator[DIE]:
    return (die for die in unit.get_top_DIE().iter_children() if die.tag == tag)


def _text(die: DIE) -> str:
    """Return the name of an entry, or "" where it has none."""
    return str(die.attributes["DW_AT_name"].value.decode()) if "DW_AT_name" in die.attributes else ""


def _constants(unit: CompileUnit) -> Iterator[tuple[str, int]]:
    for enumeration in _children(unit, "DW_TAG_enumeration_type"):
        for die in enumeration.iter_children():
            yield _text(die).replace(PREFIX.upper(), ""), die.attributes["DW_AT_const_value"].value


def _structure(die: DIE) -> Structure:
    """Return a structure. Raises ValueError where the compiler has padded it."""
    name, size = _text(die), die.attributes["DW_AT_byte_size"].value
    fields, end = [], 0
    for member in die.iter_children():
        offset = member.attributes["DW_AT_data_member_location"].value
        if offset != end:
            raise ValueError(f"{name} has padding at offset {end}: add a reserved field")
        kind, count, length = _type(member.get_DIE_from_attribute("DW_AT_type"))
        fields.append(Field(_text(member), offset, kind, count))
        end = offset + length
    if end != size:
        raise ValueError(f"{name} has padding at its end: add a reserved field")
    return Structure(name.replace(PREFIX, ""), size, fields)


def _type(die: DIE) -> tuple[Union[Text, Integer, str], int, int]:
    """Return a type, how many of it there are (0: not an array), and the size in bytes."""
    if die.tag == "DW_TAG_typedef":
        return _type(die.get_DIE_from_attribute("DW_AT_type"))
    if die.tag == "DW_TAG_array_type":
        (bound,) = die.iter_children()
        count = bound.attributes["DW_AT_upper_bound"].value + 1
        kind, _, size = _type(die.get_DIE_from_attribute("DW_AT_type"))
        return (Text(count), 0, count) if isinstance(kind, Text) else (kind, count, size * count)
    size = die.attributes["DW_AT_byte_size"].value
    if die.tag == "DW_TAG_structure_type":
        return _text(die).replace(PREFIX, ""), 0, size
    name = _text(die)
    return (Text(1) if name == "char" else Integer(size, "unsigned" not in name)), 0, size


# -- the Python mirror ------------------------------------------------------------------------------------------------


def python(header: Header) -> str:
    """Return dmods/records/audit_format.py."""
    constants = "\n".join(f"{name} = {value}" for name, value in header.constants.items())
    structures = {structure.name: structure for structure in header.structures}
    wanted = {part: None for name in IN_PYTHON for part in [*_parts(name, structures), name]}
    return f'''"""{TITLE}"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

from dmods.base.dataclass import dataclass

MAGIC = {'b"' + header.magic.decode() + '"'}
{constants}

{"".join(_python_structure(name, structures) for name in wanted).rstrip()}
'''


def _parts(name: str, structures: dict[str, Structure]) -> list[str]:
    """Return the structures that are fields of a structure, innermost first."""
    own = [field.kind for field in structures[name].fields if isinstance(field.kind, str)]
    return [part for kind in own for part in [*_parts(kind, structures), kind]]


def _python_structure(name: str, structures: dict[str, Structure]) -> str:
    title, structure = name.capitalize(), structures[name]
    named = [field for field in structure.fields if not field.reserved]
    fields = "\n".join(f"    {field.name}: {_python_type(field)}" for field in named)
    if any(isinstance(field.kind, str) for field in named):
        values = "\n".join(f"        {_python_value(field)}," for field in named)
        made = f"{title}(\n{values}\n    )"
    else:
        made = f"{title}(*islice(values, {len(named)}))"
    text = f'''
@dataclass(frozen=True)
class {title}:
    """``struct {PREFIX}{name}``: {structure.size} bytes."""

{fields}


def _{name}(values: Iterator[Any]) -> {title}:
    return {made}

'''
    if name not in IN_PYTHON:
        return text
    codes = "".join(_repeated(code, len(list(run))) for code, run in groupby(_codes(name, structures)))
    return f'''{text}
{name.upper()} = struct.Struct("<{codes}")


def read_{name}(data: bytes, at: int = 0) -> {title}:
    """Return the structure that begins at an offset."""
    return _{name}(iter({name.upper()}.unpack_from(data, at)))

'''


def _repeated(code: str, count: int) -> str:
    """Return a letter of the struct module with its count. The count of "s" is the length of one text."""
    return code * count if count == 1 or code.endswith("s") else f"{count}{code}"


def _codes(name: str, structures: dict[str, Structure]) -> Iterator[str]:
    """Yield the letters of the struct module for a structure: one for each byte of padding, text or number."""
    for field in structures[name].fields:
        if isinstance(field.kind, str):
            for _ in range(field.count or 1):
                yield from _codes(field.kind, structures)
        elif isinstance(field.kind, Text):
            yield f"{field.kind.size}s"
        elif field.reserved:
            yield from "x" * (field.kind.size * (field.count or 1))
        else:
            yield from CODES[field.kind] * (field.count or 1)


def _python_type(field: Field) -> str:
    kind = field.kind
    single = kind.capitalize() if isinstance(kind, str) else "bytes" if isinstance(kind, Text) else "int"
    return f"tuple[{', '.join([single] * field.count)}]" if field.count else single


def _python_value(field: Field) -> str:
    single = f"_{field.kind}(values)" if isinstance(field.kind, str) else "next(values)"
    return f"({', '.join([single] * field.count)})" if field.count else single


# -- the Rust mirror --------------------------------------------------------------------------------------------------


def rust(header: Header) -> str:
    """Return engine/core/src/records/format.rs."""
    # The fields are documented in format.h.
    lines = [
        f"//! {TITLE}",
        "",
        "#![allow(missing_docs)]",
        "",
        *(f"pub const {name}: u32 = {value};" for name, value in header.constants.items()),
    ]
    for structure in header.structures:
        if structure.name not in IN_RUST:
            continue
        lines += ["", f"/// The offsets of the fields of `struct {PREFIX}{structure.name}`, and its size."]
        lines += [f"pub mod {structure.name} {{"]
        lines += [f"    pub const {f.name.upper()}_AT: usize = {f.offset};" for f in structure.fields if not f.reserved]
        lines += [f"    pub const SIZE: usize = {structure.size};", "}"]
    return "\n".join(lines) + "\n"


# -- the command ------------------------------------------------------------------------------------------------------


def differing(header: Header) -> list[Path]:
    """Return the mirrors that do not agree with the header."""
    wanted = {PYTHON: python(header), RUST: rust(header)}
    return [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Return 0 where the mirrors agree with the header, 1 where --check finds one that does not."""
    parser = argparse.ArgumentParser(prog="scripts/audit-format", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say which mirrors are out of date")
    check = parser.parse_args(arguments).check
    header = read()
    if not check:
        PYTHON.write_text(python(header))
        RUST.write_text(rust(header))
        return 0
    found = differing(header)
    for path in found:
        print(f"{path.relative_to(ROOT)} does not agree with audit/format.h: run scripts/audit-format", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
