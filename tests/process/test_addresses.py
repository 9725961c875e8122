"""Reading and printing addresses."""

from __future__ import annotations

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UsageError
from dmods.process.addresses import describe_code, module_at
from tests.corekit import Crash


@pytest.fixture(scope="module")
def core(crashed: Crash) -> CoreFile:
    return CoreFile(str(crashed.core))


def test_what_a_user_may_write(core: CoreFile, crashed: Crash) -> None:
    main, malloc = crashed.symbols["main"], crashed.symbols["malloc"]
    library = crashed.symbols["crash_library_function"]
    bias = next(module.bias for module in core.modules() if module.name == "libcrash.so.1")
    for text, address in (
        (hex(main), main),
        (f"0X{main:X}", main),
        (f"{main}", main),
        (f"{main:016x}", main),
        (f"{main:x}", main),
        ("main", main),
        ("  main  ", main),
        ("main+0x10", main + 16),
        ("main + 16", main + 16),
        (f"{main:#x}+0x10", main + 16),
        ("libc.so.6`malloc", malloc),
        ("libc.so.6`malloc+0x10", malloc + 16),
        ("libcrash.so.1`crash_library_function", library),
        (f"libcrash.so.1`{library - bias:#x}", library),
        ("0", 0),
        ("1603", 1603),
    ):
        assert core.evaluate(text) == address, text


def test_hexadecimal_of_digits_only_is_understood_where_only_that_is_mapped(core: CoreFile) -> None:
    """An address that dmods printed without 0x may have no letter in it."""
    mapping = max(core.mappings(), key=lambda m: m.size)
    address = next(a for a in range(mapping.start, mapping.end, 8) if f"{a:x}".isdecimal() or a > mapping.start + 10**6)
    text = f"{address:x}"
    assert core.evaluate(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no_such",
        "main+",
        "main+x",
        "+4",
        "main-4",
        "libm.so`main",
        "nonsense`0x10",
        "0x",
        "0x1" + "0" * 16,
        "1 2",
        "9" * 30,
    ],
)
def test_what_is_no_address(core: CoreFile, text: str) -> None:
    with pytest.raises(UsageError):
        core.evaluate(text)


def test_code_is_described_as_a_frame_shows_it(core: CoreFile, crashed: Crash) -> None:
    assert describe_code(core, crashed.symbols["main"]) == "main"
    assert describe_code(core, crashed.symbols["main"] + 0x12) == "main+0x12"
    assert describe_code(core, crashed.symbols["malloc"] + 3) == "libc.so.6`malloc+0x3"
    assert describe_code(core, crashed.symbols["crash_library_function"]) == "libcrash.so.1`crash_library_function"
    assert describe_code(core, 0x10) == "0x10"
    library = next(module for module in core.modules() if module.name == "libcrash.so.1")
    assert describe_code(core, library.start + 8) == "libcrash.so.1`0x8"
    assert module_at(core, library.start) is library
    assert module_at(core, 0x10) is None


def test_a_description_leads_back(core: CoreFile) -> None:
    threads = core.threads()
    assert threads
    for thread in threads:
        pc = thread.registers["rip"]
        assert core.evaluate(describe_code(core, pc)) == pc
