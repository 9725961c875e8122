"""The engine's symbol tables, compared with nm and readelf, and damaged tables."""

from __future__ import annotations

import lzma
import struct
import subprocess
import time
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from dmods._engine import Symbols, demangle, elf_section
from dmods.corefile.target import CoreFile
from dmods.modules.elf import build_id, parse
from fixtures.limits import HANG_CPU
from tests.corekit import compile_c, kernel_core

LIBRARIES = ["/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/bin/gdb"]
KINDS = {"FUNC", "OBJECT", "NOTYPE", "IFUNC"}


def readelf(path: str, *flags: str) -> list[tuple[str, int, int, str, str]]:
    """Return (name without version, address, size, kind, binding) of every symbol that is defined in a section."""
    out = subprocess.run(["readelf", "-W", *flags, path], check=True, capture_output=True, text=True).stdout
    found = []
    for line in out.splitlines():
        words = line.split()
        if len(words) >= 8 and words[0].endswith(":") and words[6].isdigit():
            size = int(words[2], 0)
            found.append((words[7].partition("@")[0], int(words[1], 16), size, words[3], words[4]))
    return found


@pytest.mark.parametrize("path", LIBRARIES)
def test_every_symbol_of_a_library(path: str) -> None:
    symbols = Symbols([path])
    truth = [s for s in readelf(path, "--dyn-syms") if s[3] in KINDS]
    assert truth
    names_at: dict[int, set[str]] = {}
    for name, address, _size, _kind, _bind in truth:
        names_at.setdefault(address, set()).add(name)
    addresses: dict[str, set[int]] = {}
    for name, address, _size, _kind, _bind in truth:
        addresses.setdefault(name, set()).add(address)
    for name, address, size, _kind, _bind in truth:
        found = symbols.lookup(name)
        assert found is not None
        assert found[0] in addresses[name]
        if size:
            for at in (address, address + size - 1):
                named = symbols.at(at)
                assert named is not None
                assert named[1] <= at < named[1] + max(named[2], 1)
                assert named[0] in names_at[named[1]]
    assert symbols.lookup("") is None
    assert symbols.at(0) is None
    assert symbols.at(2**64 - 1) is None
    assert symbols.at(-1) is None


def test_addresses_between_symbols_have_no_name() -> None:
    """Past the end of a sized function, only another symbol may answer."""
    path = LIBRARIES[1]
    symbols = Symbols([path])
    covered = [(a, a + size) for _n, a, size, kind, _b in readelf(path, "--dyn-syms") if kind in KINDS and size]
    ends = sorted({end for _start, end in covered})
    unnamed = 0
    for end in ends[:: max(1, len(ends) // 500)]:
        inside = any(start <= end < stop for start, stop in covered)
        assert (symbols.at(end) is not None) == inside
        unnamed += not inside
    assert unnamed > 10


def test_a_default_version_wins() -> None:
    """libc has memcpy@GLIBC_2.2.5 and memcpy@@GLIBC_2.14."""
    path = LIBRARIES[0]
    out = subprocess.run(["readelf", "-W", "--dyn-syms", path], check=True, capture_output=True, text=True).stdout
    (default,) = (int(line.split()[1], 16) for line in out.splitlines() if " memcpy@@" in line)
    found = Symbols([path]).lookup("memcpy")
    assert found is not None
    assert found[0] == default


PREFERENCES = r"""
    .text
    .globl plain
    .type plain, @function
    .globl __plain
    .type __plain, @function
    .type a_local, @function
    .weak weaker
    .type weaker, @function
plain: __plain: a_local: weaker:
    nop
label_inside:
    nop
    .size plain, . - plain
    .size __plain, . - plain
    .size a_local, . - plain
    .size weaker, . - plain
    .skip 64
    .globl sizeless
    .type sizeless, @function
sizeless:
    nop
    .skip 63
    .globl outer
    .type outer, @function
    .type inner, @function
outer:
    .skip 16
inner:
    .skip 16
    .size inner, . - inner
    .skip 16
    .size outer, . - outer
    .section .tdata, "awT", @progbits
    .globl local_to_threads
    .type local_to_threads, @object
    .long 1
local_to_threads:
    .long 2
    .size local_to_threads, 4
"""


@pytest.fixture(scope="module")
def preferences(tmp_path_factory: pytest.TempPathFactory) -> tuple[Symbols, dict[str, int]]:
    where = tmp_path_factory.mktemp("preferences")
    (where / "p.S").write_text(PREFERENCES)
    library = compile_c(where / "p.S", where / "p.so", "-shared", "-nostdlib")
    return Symbols([str(library)]), {name: address for name, address, *_ in readelf(str(library), "-s")}


def test_which_name_is_shown(preferences: tuple[Symbols, dict[str, int]]) -> None:
    symbols, truth = preferences

    def name_at(address: int) -> str:
        found = symbols.at(address)
        return found[0] if found else ""

    assert name_at(truth["plain"]) == "plain"  # not weaker (longer), __plain (underscores) or a_local
    assert name_at(truth["label_inside"]) == "plain"  # a label inside a function has no size
    assert name_at(truth["plain"] + 2) == ""  # between the two
    assert name_at(truth["sizeless"] + 10) == "sizeless"
    assert name_at(truth["outer"] - 1) == "sizeless"
    assert name_at(truth["outer"] + 8) == "outer"
    assert name_at(truth["inner"] + 8) == "inner"
    assert name_at(truth["inner"] + 20) == "outer"
    assert name_at(truth["outer"] + 48) == ""


def test_thread_locals_are_kept_apart(preferences: tuple[Symbols, dict[str, int]]) -> None:
    symbols, _truth = preferences
    assert symbols.tls("local_to_threads") == (4, 4)
    assert symbols.lookup("local_to_threads") is None
    assert symbols.tls("plain") is None


def test_separate_debug_information_and_minidebuginfo(tmp_path: Path) -> None:
    """A stripped program's static functions get names from a .debug file under the sysroot, or from .gnu_debugdata."""
    (tmp_path / "s.c").write_text(
        "#include <stdlib.h>\n__attribute__((noinline)) static void secret(void) { abort(); }\n"
        "int main(void) { secret(); }\n"
    )
    program = compile_c(tmp_path / "s.c", tmp_path / "s")
    (tmp_path / "run").mkdir()
    address = {name: a for name, a, *_ in readelf(str(program), "-s")}["secret"]
    debug = tmp_path / "s.debug"
    subprocess.run(["objcopy", "--only-keep-debug", str(program), str(debug)], check=True)
    subprocess.run(["strip", "--strip-all", str(program)], check=True)
    core_path = kernel_core(program, tmp_path / "run")
    assert CoreFile(str(core_path)).lookup("secret") is None

    root = tmp_path / "root"
    data = program.read_bytes()

    def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    identity = build_id(parse(read, ""), read)
    assert identity is not None
    place = root / "usr/lib/debug/.build-id" / identity[:2]
    place.mkdir(parents=True)
    debug.rename(place / f"{identity[2:]}.debug")
    core = CoreFile(str(core_path), sysroot=str(root))
    assert core.program is not None
    assert core.program.file is None
    found = core.lookup("secret")  # the program is not under the root; its symbols are
    assert found is not None
    assert found.address == address + core.program.bias

    small = tmp_path / "mini"
    subprocess.run(
        ["objcopy", "-S", "--keep-symbol=secret", str(place / f"{identity[2:]}.debug"), str(small)], check=True
    )
    (tmp_path / "mini.xz").write_bytes(lzma.compress(small.read_bytes()))
    subprocess.run(["objcopy", "--add-section", f".gnu_debugdata={tmp_path / 'mini.xz'}", str(program)], check=True)
    assert elf_section(str(program), ".gnu_debugdata") == (tmp_path / "mini.xz").read_bytes()
    assert elf_section(str(program), ".nonesuch") is None
    again = CoreFile(str(core_path)).lookup("secret")
    assert again is not None
    assert again.address == found.address


def test_demangling() -> None:
    mangled = subprocess.run(
        ["c++filt", "--no-params", "_ZN4game6Player4moveEii", "_ZNSt6vectorIiSaIiEE9push_backERKi"],
        check=True, capture_output=True, text=True,
    ).stdout.split("\n")  # fmt: skip
    assert demangle("_ZN4game6Player4moveEii") == mangled[0]
    assert demangle("_ZNSt6vectorIiSaIiEE9push_backERKi").replace(" >", ">") == mangled[1].replace(" >", ">")
    assert demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE") == "core::fmt::Formatter::pad"
    for plain in ("main", "", "_Z", "_Zzzz", "_ZN" + "1a" * 40_000):
        assert demangle(plain) == plain


def test_a_name_that_doubles_at_every_step_is_left_alone() -> None:
    """Substitutions make a short name stand for an exponentially long one."""
    name = (
        "_Z1fI"
        + "".join(f"St4pairI{'S_' if n == 0 else f'S{n - 1}_'}{'S_' if n == 0 else f'S{n - 1}_'}E" for n in range(60))
        + "E"
    )
    started = time.process_time()
    assert len(demangle(name)) <= 1 << 14
    assert time.process_time() - started < HANG_CPU


def symbol_table(entries: list[bytes], strings: bytes) -> bytes:
    """Return an ELF file with only a .text section, a .symtab and a string table."""
    symtab = b"".join(entries)
    at_strings = 64 + len(symtab)
    at_sections = at_strings + len(strings)

    def section(kind: int, *, flags: int = 0, at: tuple[int, int, int], link: int = 0, entry: int = 0) -> bytes:
        return struct.pack("<IIQQQQIIQQ", 0, kind, flags, *at, link, 0, 1, entry)

    sections = [
        bytes(64),
        section(1, flags=6, at=(0x1000, 0, 0x100000)),
        section(2, at=(0, 64, len(symtab)), link=3, entry=24),
        section(3, at=(0, at_strings, len(strings))),
    ]
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at_sections, 0, 64, 56, 0, 64, len(sections), 3)
    return header + symtab + strings + b"".join(sections)


def test_tables_that_lie() -> None:
    def entry(name: int, value: int, size: int, shndx: int = 1) -> bytes:
        return struct.pack("<IBBHQQ", name, 0x12, 0, shndx, value, size)

    strings = b"\0good\0" + b"x" * 100_000 + b"\0" + b"unterminated"
    good = entry(1, 0x2000, 16)
    table = symbol_table(
        [
            bytes(24),
            good,
            entry(2**32 - 1, 0x3000, 16),
            entry(len(strings) - 3, 0x3100, 16),
            entry(1, 2**64 - 1, 2**64 - 1),
            entry(1, 0x5000, 2**64 - 1),
            entry(1, 0x6000, 16, shndx=0xFFF1),
            entry(1, 0x6000, 16, shndx=77),
        ],
        strings,
    )
    symbols = Symbols([], [table])
    assert symbols.at(0x2001) == ("good", 0x2000, 16)
    assert symbols.at(0x3001) is None
    assert symbols.at(0x6001) == ("good", 0x5000, 2**64 - 1)  # to the end of the section
    assert symbols.at(0x1000 + 0x100000) is None

    # 200,000 names share one long string. As much as an honest file has is read; the rest costs nothing.
    shared = symbol_table([entry(6, 0x2000 + n % 4096, 1) for n in range(200_000)], strings)
    started = time.process_time()
    assert len(Symbols([], [shared])) < 100
    assert time.process_time() - started < HANG_CPU

    for length in range(0, len(table), 997):
        cut = Symbols([], [table[:length]])
        assert cut.at(0x2001) is None
    for junk in (b"", b"\x7fELF", table[:64] + b"\xff" * 500, b"\xff" * 64):
        assert len(Symbols([], [junk])) == 0
    assert len(Symbols(["/nonexistent", "/dev/null", "/"], [])) == 0


def test_a_symbol_whose_section_has_another_number(tmp_path: Path) -> None:
    """Deno's dynamic symbols all have the number of .init, and the addresses of functions in .text."""
    source = tmp_path / "numbers.c"
    source.write_text(
        "int first(void) { return 1; } int second(void) { return 2; } int data = 3; _Thread_local int tls = 4;"
    )
    library = compile_c(source, tmp_path / "numbers.so", "-shared", "-fPIC", "-s")
    proper = {name: Symbols([str(library)]).lookup(name) for name in ("first", "second", "data", "tls")}
    assert [name for name, place in proper.items() if place is None] == ["tls"]  # it has no address
    raw = bytearray(library.read_bytes())
    with open(library, "rb") as stream:
        file = ELFFile(stream)
        table, init = file.get_section_by_name(".dynsym"), file.get_section_index(".init")
        for number, symbol in enumerate(table.iter_symbols()):
            if symbol.name in ("first", "second"):
                struct.pack_into("<H", raw, table["sh_offset"] + 24 * number + 6, init)
    changed = tmp_path / "changed.so"
    changed.write_bytes(raw)
    symbols = Symbols([str(changed)])
    assert {name: symbols.lookup(name) for name in proper} == proper
    assert proper["first"] is not None
    assert symbols.at(proper["first"][0] + 1) == ("first", *proper["first"])


def test_large_tables_load() -> None:
    strings = b"\0" + b"".join(b"symbol_%06d\0" % n for n in range(300_000))
    entries = [struct.pack("<IBBHQQ", 1 + 14 * n, 0x12, 0, 1, 0x1000 + n * 3, 3) for n in range(300_000)]
    table = symbol_table(entries, strings)
    started = time.process_time()
    symbols = Symbols([], [table])
    assert symbols.at(0x1000 + 3 * 123_456 + 1) == ("symbol_123456", 0x1000 + 3 * 123_456, 3)
    assert symbols.lookup("symbol_299999") == (0x1000 + 3 * 299_999, 3)
    assert time.process_time() - started < HANG_CPU
